package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// inVitess is the dialect of Vitess. Its locks are those of InnoDB, in the MySQL server of a shard.
//
// vtgate computes a time by its own clock if a statement names no table: the clock is read beside a
// row. A read that is not in a transaction may be answered by the result of an equal one that began
// earlier: every read is in a transaction.
var inVitess = &dialect{
	now: utcNow,
	rewrites: strings.NewReplacer(
		"AS now_us) c", "AS now_us FROM dblock_schema) c",
		// 0: there is none
		"@@sql_select_limit", "IF(@@sql_select_limit = 0, 9223372036854775807, @@sql_select_limit)",
		"sql_select_limit = 18446744073709551615, timestamp = DEFAULT", "sql_select_limit = 0",
	),
	plain: true,
	skips: maxList,
	deaf: driver.Fail(driver.ErrUnsupported,
		errors.New("KILL of Vitess does not know the connection that has a named lock, which would wake a listener")),
	lasting: true,
	pairs:   pairsWith("FOR SHARE"),
	sharded: inShards,
}

// inShards refuses tables in a keyspace of several shards, where the rows of one name would be in
// different shards.
func inShards(ctx context.Context, on *sql.Conn, keyspace string) error {
	if keyspace == "" {
		if err := on.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&keyspace); err != nil {
			return err
		}
	}
	if i := strings.IndexAny(keyspace, "@:/"); i >= 0 { // a kind of tablet, or a shard
		keyspace = keyspace[:i]
	}
	rows, err := on.QueryContext(ctx, "SHOW VITESS_SHARDS")
	if err != nil {
		return err
	}
	defer rows.Close()
	shards := 0
	for rows.Next() {
		var shard string
		if err := rows.Scan(&shard); err != nil {
			return err
		}
		if strings.HasPrefix(shard, keyspace+"/") {
			shards++
		}
	}
	if shards > 1 {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("keyspace %s has %d shards: keep dblock's tables in one that "+
			"is not sharded, named in the DSN or by mysql.Database", keyspace, shards))
	}
	return rows.Err()
}
