package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

// obstacle is a transaction that keeps the rows of a name locked. Every request to take, release or
// hand on the name waits for its end.
type obstacle struct {
	PID   int64 // of its connection, as the server lists it; on SQLite of its process
	User  string
	From  string // the program, and its address
	State string
	Age   time.Duration
	Query string // the last
}

// probe has the statements that find an obstacle. MariaDB and PostgreSQL do not tell which
// transaction has locked a row that no statement waits for. So one connection waits for the rows,
// and another reads which transactions it waits for.
type probe struct {
	begin []string // its wait ends after a second: a server does not notice that a client is gone
	// the server's id of the connection in that transaction: a pooler may lend another to the next
	id    string
	locks []string // each locks rows of a name, in a transaction of its own
	ahead string   // the transactions that a connection waits for and that do not wait themselves
}

const (
	probeTime = 2 * time.Second
	// inTheWay is the time for which a transaction must be seen in the way. dblock's own are
	// shorter, but one may follow another.
	inTheWay = 100 * time.Millisecond
)

// probes find obstacles for the rows of a name, and for those that a guarded hold has for its
// takeover. The first column of ahead distinguishes two transactions of one connection.
var probes = map[migrate.Engine]probe{
	migrate.Postgres: {
		begin: []string{"BEGIN", "SET LOCAL lock_timeout = '1s'"}, id: "SELECT pg_backend_pid()",
		locks: []string{
			"SELECT 1 FROM dblock_locks WHERE name = $1 FOR UPDATE",
			"SELECT 1 FROM dblock_guards WHERE attempt IN (SELECT attempt FROM dblock_holders WHERE name = $1) FOR " +
				"UPDATE",
		},
		ahead: `WITH RECURSIVE ahead (pid) AS (
			SELECT unnest(pg_blocking_pids($1)) UNION SELECT b.pid FROM ahead a, unnest(pg_blocking_pids(a.pid)) b (pid)
		) SELECT concat(p.pid, ' ', a.xact_start), p.pid, coalesce(a.usename, ''), concat_ws(' ', nullif(a.application_name, ''), host(a.client_addr)),
		         CASE WHEN p.pid = 0 THEN 'prepared (pg_prepared_xacts)' ELSE coalesce(a.state, '') END,
		         coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0), coalesce(a.query, '')
		    FROM ahead p LEFT JOIN pg_stat_activity a USING (pid) WHERE p.pid = 0 OR pg_blocking_pids(p.pid) = '{}'`,
	},
	migrate.MySQL: {
		begin: mysqlBegin, id: "SELECT CONNECTION_ID()", locks: mysqlLocks,
		ahead: `WITH RECURSIVE ahead (id) AS (
			SELECT w.blocking_engine_transaction_id FROM information_schema.innodb_trx me
			  JOIN performance_schema.data_lock_waits w ON w.requesting_engine_transaction_id = me.trx_id WHERE me.trx_mysql_thread_id = ?
			UNION
			SELECT w.blocking_engine_transaction_id FROM ahead a JOIN performance_schema.data_lock_waits w ON w.requesting_engine_transaction_id = a.id
		) SELECT CONCAT(b.trx_id, ' ', b.trx_mysql_thread_id), b.trx_mysql_thread_id, COALESCE(t.processlist_user, ''), COALESCE(t.processlist_host, ''),
		         IF(b.trx_mysql_thread_id = 0, 'prepared (XA RECOVER)', COALESCE(t.processlist_command, '')),
		         ` + mysqlAge + `, COALESCE(b.trx_query, s.sql_text, '')
		    FROM ahead a JOIN information_schema.innodb_trx b ON b.trx_id = a.id AND b.trx_state = 'RUNNING'
		    LEFT JOIN performance_schema.threads t ON t.processlist_id = b.trx_mysql_thread_id AND b.trx_mysql_thread_id <> 0
		    LEFT JOIN performance_schema.events_statements_current s ON s.thread_id = t.thread_id`,
	},
	mariaDB: {
		begin: mysqlBegin, id: "SELECT CONNECTION_ID()", locks: mysqlLocks,
		ahead: `WITH RECURSIVE ahead (id) AS (
			SELECT w.blocking_trx_id FROM information_schema.innodb_trx me
			  JOIN information_schema.innodb_lock_waits w ON w.requesting_trx_id = me.trx_id WHERE me.trx_mysql_thread_id = ?
			UNION
			SELECT w.blocking_trx_id FROM ahead a JOIN information_schema.innodb_lock_waits w ON w.requesting_trx_id = a.id
		) SELECT CONCAT(b.trx_id, ' ', b.trx_mysql_thread_id), b.trx_mysql_thread_id, COALESCE(p.user, ''), COALESCE(p.host, ''),
		         IF(b.trx_mysql_thread_id = 0, 'prepared (XA RECOVER)', COALESCE(p.command, '')),
		         ` + mysqlAge + `, COALESCE(b.trx_query, '')
		    FROM ahead a JOIN information_schema.innodb_trx b ON b.trx_id = a.id AND b.trx_state = 'RUNNING' AND b.trx_lock_structs > 0
		    LEFT JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id`,
	},
	migrate.SQLite: {begin: []string{"PRAGMA busy_timeout = 1000"}, id: "SELECT 0", locks: []string{"BEGIN IMMEDIATE"}},
}

var (
	mysqlBegin = []string{"SET innodb_lock_wait_timeout = 1", "START TRANSACTION"}
	mysqlLocks = []string{
		"SELECT 1 FROM dblock_locks WHERE name = ? FOR UPDATE",
		"SELECT 1 FROM dblock_locks l STRAIGHT_JOIN dblock_guards g FORCE INDEX (PRIMARY) ON g.attempt = l.attempt " +
			"WHERE l.name = ? FOR UPDATE",
		"SELECT 1 FROM dblock_shares r STRAIGHT_JOIN dblock_guards g FORCE INDEX (PRIMARY) ON g.attempt = r.attempt " +
			"WHERE r.name = ? FOR UPDATE",
	}
)

// mysqlAge is the age of a transaction. The server tells its start in the system's time zone,
// whatever the session's.
const mysqlAge = "TIMESTAMPDIFF(MICROSECOND, b.trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) / 1e6"

// noRoom is MySQL's error while any transaction runs a statement with a character that
// information_schema.innodb_trx has no room for. The next look may find none.
const noRoom = 3854

// obstacles lists the transactions that keep the rows of a name locked, or none if the rows are
// free. It locks the rows only while it finds out.
func (d database) obstacles(ctx context.Context, p probe, name string) ([]obstacle, error) {
	for _, lock := range p.locks {
		var arguments []any
		if strings.ContainsAny(lock, "$?") {
			arguments = []any{name}
		}
		if found, err := d.before(ctx, p, lock, arguments...); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// before lists the transactions that a lock waits for.
func (d database) before(ctx context.Context, p probe, lock string, arguments ...any) ([]obstacle, error) {
	conn, err := d.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { // with its settings and locks
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	for _, statement := range p.begin {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	var id int64
	if err := conn.QueryRowContext(ctx, p.id).Scan(&id); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, probeTime)
	had := make(chan error, 1)
	go func() {
		err := conn.QueryRowContext(waiting, lock, arguments...).Scan(new(int))
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		had <- err
	}()
	seen := map[string]bool{}
	for {
		select {
		case err := <-had:
			cancel()
			return nil, err
		case <-time.After(inTheWay):
		}
		found, err := d.ahead(ctx, p, id, seen)
		if err != nil && errorNumber(err) != noRoom || len(found) > 0 {
			cancel()
			<-had
			return found, err
		}
	}
}

// ahead lists the transactions that a connection waits for now, and already waited for at the
// previous call.
func (d database) ahead(ctx context.Context, p probe, id int64, seen map[string]bool) (found []obstacle, err error) {
	add := func(transaction string, o obstacle) {
		if seen[transaction] {
			found = append(found, o)
		}
		seen[transaction] = true
	}
	if d.engine == migrate.SQLite {
		err = writers(d.file, add)
		return found, err
	}
	rows, err := d.QueryContext(ctx, p.ahead, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var transaction string
		var o obstacle
		var seconds float64
		if err := rows.Scan(&transaction, &o.PID, &o.User, &o.From, &o.State, &seconds, &o.Query); err != nil {
			return nil, err
		}
		o.Age = time.Duration(seconds * float64(time.Second))
		add(transaction, o)
	}
	return found, rows.Err()
}
