package migrate

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
)

// A comment in the catalog on PostgreSQL, a row of dblock_columns elsewhere: for every table, view
// and column that there is, and for none else. What several engines have is explained alike.
func TestEveryTableAndColumnIsExplained(t *testing.T) {
	meanings := map[string]string{} // of all engines
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		there := pairs(t, pool, map[migrate.Engine]string{
			migrate.Postgres: `SELECT c.relname, coalesce(a.attname, ''), coalesce(col_description(c.oid, coalesce(a.attnum, 0)), obj_description(c.oid, 'pg_class'), '')
				FROM pg_class c LEFT JOIN LATERAL (SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 UNION ALL SELECT NULL, NULL) a ON true
				WHERE c.relkind IN ('r', 'v') AND c.relname LIKE 'dblock%'`,
			migrate.MySQL: `SELECT c.table_name, c.column_name, '' FROM information_schema.columns c WHERE c.table_schema = DATABASE() AND c.table_name LIKE 'dblock%'
				UNION ALL SELECT t.table_name, '', '' FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_name LIKE 'dblock%'`,
			migrate.SQLite: `SELECT m.name, c.name, '' FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.name LIKE 'dblock%'
				UNION ALL SELECT name, '', '' FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE 'dblock%'`,
		}[db.Engine])
		said := there
		if db.Engine != migrate.Postgres {
			said = pairs(t, pool, "SELECT table_name, column_name, meaning FROM dblock_columns")
		}
		if len(said) < 100 {
			t.Fatalf("only %d are explained", len(said))
		}
		for what := range there {
			meaning := said[what]
			if meaning == "" {
				t.Errorf("nothing is said of %s", what)
			}
			if other := meanings[what]; other != "" && other != meaning && !strings.HasSuffix(what, ".longest_wait") {
				t.Errorf("%s: %q, elsewhere %q", what, meaning, other)
			}
			meanings[what] = meaning
		}
		for what := range said {
			if _, is := there[what]; !is {
				t.Errorf("%s is explained, and is not there", what)
			}
		}
	})
}

// pairs reads what is said of "table.column", and of "table.", without goose's table.
func pairs(t *testing.T, pool *sql.DB, query string) map[string]string {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), query)
	ok(t, err)
	defer rows.Close()
	said := map[string]string{}
	for rows.Next() {
		var table, column, meaning string
		ok(t, rows.Scan(&table, &column, &meaning))
		if table != migrate.Locks.Table() {
			said[table+"."+column] = meaning
		}
	}
	ok(t, rows.Err())
	return said
}

// Of 10,000 names, each with a holder and a waiter, the views read those of one.
func TestTheViewsFindANameByTheIndex(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		pool.SetMaxOpenConns(1)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		exec := func(format string, args ...any) {
			t.Helper()
			_, err := pool.ExecContext(t.Context(), fmt.Sprintf(format, args...))
			ok(t, err)
		}
		exec("INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES ('s', '', 1, '', 1)")
		exec("INSERT INTO dblock_heartbeats (session_id, expires_at) VALUES ('s', 1)")
		var names, waiters, shares []string
		for i := range 10_000 {
			names = append(names, fmt.Sprintf("('n%d', 's', 'h', 't', 'a', 1, 1, 1, 1, '')", i))
			waiters = append(waiters, fmt.Sprintf("('n%d', 1, 's', 'h', 't', 'w%d', 0, '', 1)", i, i))
			shares = append(shares, fmt.Sprintf("('s%d', 1, 's', 'h', 't', 'r%d', 1, 1, '')", i, i))
		}
		for at := 0; at < len(names); at += 1000 {
			exec("INSERT INTO dblock_locks (name, session_id, host, thread, attempt, token, acquired_at, waiters, "+
				"next_ticket, metadata) VALUES %s", strings.Join(names[at:at+1000], ", "))
			exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, "+
				"enqueued_at) VALUES %s", strings.Join(waiters[at:at+1000], ", "))
			exec("INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, acquired_at, "+
				"metadata) VALUES %s", strings.Join(shares[at:at+1000], ", "))
		}
		for _, view := range []string{"dblock_who", "dblock_queue"} {
			if read := rowsRead(t, db, pool, "SELECT * FROM "+view+" WHERE name = 'n4711'"); read > 100 {
				t.Errorf("%s reads %d rows for one name", view, read)
			}
			began := time.Now()
			var n int
			scan(t, pool, &n, "SELECT count(*) FROM (SELECT * FROM "+view+") a")
			if n != 10_000 {
				t.Errorf("%s has %d rows", view, n)
			}
			t.Logf("%s: %v for all rows", view, time.Since(began))
		}
	})
}

// rowsRead runs a query on a pool of one connection, and returns how many rows of tables it has
// read; on SQLite, where nobody counts, 0 or very many.
func rowsRead(t *testing.T, db dbtest.Database, pool *sql.DB, query string) (read int) {
	t.Helper()
	run := func(query string) {
		t.Helper()
		rows, err := pool.QueryContext(t.Context(), query)
		ok(t, err)
		n := 0
		for rows.Next() {
			n++
		}
		ok(t, rows.Err())
		ok(t, rows.Close())
		if n != 1 {
			t.Errorf("%s: %d rows", query, n)
		}
	}
	switch db.Engine {
	case migrate.Postgres:
		const counted = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE " +
			"relname LIKE 'dblock%'"
		_, err := pool.ExecContext(t.Context(), "ANALYZE; BEGIN")
		ok(t, err)
		defer func() { _, err := pool.ExecContext(t.Context(), "ROLLBACK"); ok(t, err) }()
		run(query)
		scan(t, pool, &read, counted)
	case migrate.MySQL:
		_, err := pool.ExecContext(t.Context(), "FLUSH STATUS")
		ok(t, err)
		run(query)
		rows, err := pool.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		ok(t, err)
		defer rows.Close()
		for rows.Next() {
			var name string
			var n int
			ok(t, rows.Scan(&name, &n))
			read += n
		}
		ok(t, rows.Err())
	case migrate.SQLite:
		run(query)
		rows, err := pool.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query)
		ok(t, err)
		defer rows.Close()
		for rows.Next() {
			var id, parent, unused int
			var step string
			ok(t, rows.Scan(&id, &parent, &unused, &step))
			for _, table := range []string{"SCAN l", "SCAN r", "SCAN w", "SCAN s", "SCAN h"} {
				if step == table || strings.HasPrefix(step, table+" ") {
					read += 10_000
				}
			}
		}
		ok(t, rows.Err())
	}
	return read
}
