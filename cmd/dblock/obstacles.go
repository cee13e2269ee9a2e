package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

// obstacle is a transaction that keeps the rows of a name locked. Whoever wants to take, release or
// hand on the name waits for its end.
type obstacle struct {
	PID   int64         // of its connection, as the server lists it; on SQLite of its process
	User  string        `json:",omitempty"`
	From  string        `json:",omitempty"` // the program, and its address
	State string        `json:",omitempty"`
	Age   time.Duration `json:",omitempty"`
	Query string        `json:",omitempty"` // the last
}

// probe has the statements that find an obstacle. MariaDB and PostgreSQL do not tell who has
// locked a row for which nobody waits. So one connection waits for the rows, and another asks whom
// it waits for.
type probe struct {
	id    string   // what the server calls the connection
	limit string   // ends its wait: a server does not see that a client went away
	begin string   // the transaction
	rows  []string // locks the rows of a name
	ahead string   // those who do not wait themselves, among the transactions that a connection waits for
}

const (
	probeTime = time.Second
	inTheWay  = 100 * time.Millisecond // no transaction of dblock's own takes as long
)

// The rows are those of the name, and those that a guarded hold has for its takeover.
var probes = map[string]probe{
	migrate.Postgres: {
		id: "SELECT pg_backend_pid()", limit: "SET lock_timeout = '1s'", begin: "BEGIN",
		rows: []string{
			"SELECT 1 FROM dblock_locks WHERE name = $1 FOR UPDATE",
			"SELECT 1 FROM dblock_guards WHERE attempt IN (SELECT attempt FROM dblock_holders WHERE name = $1) FOR UPDATE",
		},
		ahead: `WITH RECURSIVE ahead (pid) AS (
			SELECT unnest(pg_blocking_pids($1)) UNION SELECT b.pid FROM ahead a, unnest(pg_blocking_pids(a.pid)) b (pid)
		) SELECT pid, coalesce(usename, ''), concat_ws(' ', nullif(application_name, ''), host(client_addr)), coalesce(state, ''),
		         coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0), coalesce(query, '')
		    FROM ahead JOIN pg_stat_activity USING (pid) WHERE pg_blocking_pids(pid) = '{}'`,
	},
	migrate.MySQL: {
		id: "SELECT CONNECTION_ID()", limit: "SET innodb_lock_wait_timeout = 1", begin: "START TRANSACTION", rows: mysqlRows,
		ahead: `SELECT b.trx_mysql_thread_id, COALESCE(t.processlist_user, ''), COALESCE(t.processlist_host, ''), COALESCE(t.processlist_command, ''),
			TIMESTAMPDIFF(MICROSECOND, b.trx_started, NOW(6)) / 1e6, COALESCE(b.trx_query, s.sql_text, '')
			FROM performance_schema.threads me JOIN performance_schema.data_lock_waits w ON w.requesting_thread_id = me.thread_id
			JOIN performance_schema.threads t ON t.thread_id = w.blocking_thread_id
			JOIN information_schema.innodb_trx b ON b.trx_mysql_thread_id = t.processlist_id AND b.trx_state = 'RUNNING'
			LEFT JOIN performance_schema.events_statements_current s ON s.thread_id = t.thread_id
			WHERE me.processlist_id = ?`,
	},
	mariaDB: {
		id: "SELECT CONNECTION_ID()", limit: "SET innodb_lock_wait_timeout = 1", begin: "START TRANSACTION", rows: mysqlRows,
		ahead: `SELECT b.trx_mysql_thread_id, COALESCE(p.user, ''), COALESCE(p.host, ''), COALESCE(p.command, ''),
			TIMESTAMPDIFF(MICROSECOND, b.trx_started, NOW(6)) / 1e6, COALESCE(b.trx_query, '')
			FROM information_schema.innodb_trx me JOIN information_schema.innodb_lock_waits w ON w.requesting_trx_id = me.trx_id
			JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id AND b.trx_state = 'RUNNING'
			LEFT JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id
			WHERE me.trx_mysql_thread_id = ?`,
	},
	migrate.SQLite: {id: "SELECT 0", limit: "PRAGMA busy_timeout = 1000", begin: "BEGIN IMMEDIATE"},
}

var mysqlRows = []string{
	"SELECT 1 FROM dblock_locks WHERE name = ? FOR UPDATE",
	"SELECT 1 FROM dblock_locks l STRAIGHT_JOIN dblock_guards g FORCE INDEX (PRIMARY) ON g.attempt = l.attempt WHERE l.name = ? FOR UPDATE",
	"SELECT 1 FROM dblock_shares r STRAIGHT_JOIN dblock_guards g FORCE INDEX (PRIMARY) ON g.attempt = r.attempt WHERE r.name = ? FOR UPDATE",
}

// obstacles lists the transactions that keep the rows of a name locked: none where the rows can be
// had at once. It has them only for the moment that it takes to find out.
func (d database) obstacles(ctx context.Context, p probe, name string) ([]obstacle, error) {
	conn, err := d.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var id int64
	if err := conn.QueryRowContext(ctx, p.id).Scan(&id); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, 2*probeTime)
	had := make(chan error, 1)
	go func() { had <- p.wait(waiting, conn, name) }()
	defer cancel()
	for {
		select {
		case err := <-had:
			return nil, err
		case <-time.After(inTheWay):
		}
		if found, err := d.ahead(ctx, p, id); err != nil || len(found) > 0 {
			cancel()
			<-had
			return found, err
		}
	}
}

// wait locks the rows of a name, and gives them back.
func (p probe) wait(ctx context.Context, c *sql.Conn, name string) (err error) {
	if _, err := c.ExecContext(ctx, p.limit); err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, p.begin); err != nil {
		return err
	}
	for _, row := range p.rows {
		if err = c.QueryRowContext(ctx, row, name).Scan(new(int)); errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		if err != nil {
			break
		}
	}
	_, failed := c.ExecContext(ctx, "ROLLBACK")
	return errors.Join(err, failed)
}

// ahead lists the transactions that a connection waits for.
func (d database) ahead(ctx context.Context, p probe, id int64) (found []obstacle, err error) {
	if d.engine == migrate.SQLite {
		return writers(d.file)
	}
	rows, err := d.QueryContext(ctx, p.ahead, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o obstacle
		var seconds float64
		if err := rows.Scan(&o.PID, &o.User, &o.From, &o.State, &seconds, &o.Query); err != nil {
			return nil, err
		}
		o.Age = time.Duration(seconds * float64(time.Second))
		found = append(found, o)
	}
	return found, rows.Err()
}
