package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// vitess is Vitess. Its locks are those of InnoDB, in the MySQL server of a shard.
//
// vtgate computes a time by its own clock if a statement names no table: the clock is read beside a
// row. A read that is not in a transaction may be answered by the result of an equal one that began
// earlier: every read is in a transaction.
type vitess struct{ transacting }

var inVitess = &vitess{transacting{common{facts{
	texts:  mysqldb.Vitess,
	resets: "SET SESSION sql_select_limit = 0", endless: true,
	deaf: driver.Fail(driver.ErrUnsupported,
		errors.New("KILL of Vitess does not know the connection that has a named lock, which would wake a listener")),
	pairs: pairsWith("FOR SHARE"),
}}}}

// giveBack closes the connection: a level of isolation that is meant for one transaction is that of
// all later ones.
func (*vitess) giveBack(conn *sql.Conn) { mysqlserver.Discard(conn) }

// examine refuses tables in a keyspace of several shards, where the rows of one name would be in
// different shards.
func (*vitess) examine(ctx context.Context, on *sql.Conn, keyspace string) error {
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
