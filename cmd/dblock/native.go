package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// native is an advisory lock of PostgreSQL, or a named lock of MySQL or MariaDB, that a connection
// has or waits for. Such locks have no owner and no token.
type native struct {
	Name  string // of dblock, if the key reveals it
	Key   string // of the database
	Kind  string // exclusive or shared; or the connection waits
	PID   int64  // of the connection, as the server lists it
	User  string
	From  string        // the program, and its address
	State string        // of the connection
	Age   time.Duration // of that state
}

var natives = listing[native]{
	header: table.Row{"name", "key", "kind", "pid", "user", "from", "state", "for"},
	row: func(n native) table.Row {
		return table.Row{n.Name, n.Key, n.Kind, n.PID, n.User, n.From, n.State, span(n.Age)}
	},
	none: "No connection has an advisory or named lock, or waits for one.",
}

// advisoryLocks lists advisory locks. Their keys are numbers: one of 64 bits, as dblock has them,
// or two of 32.
const advisoryLocks = `SELECT CASE l.objsubid WHEN 1 THEN ((l.classid::bigint << 32) | l.objid::bigint)::text
       ELSE concat('(', l.classid::bigint::bit(32)::int, ', ', l.objid::bigint::bit(32)::int, ')') END,
       concat(CASE WHEN l.mode = 'ShareLock' THEN 'shared' ELSE 'exclusive' END, CASE WHEN NOT l.granted THEN ', waits' END),
       a.pid, coalesce(a.usename, ''), concat_ws(' ', nullif(a.application_name, ''), host(a.client_addr)), coalesce(a.state, ''),
       coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY l.classid, l.objid, l.granted DESC, a.pid`

const namedLocks = `SELECT m.object_name, IF(m.lock_status = 'GRANTED', 'exclusive', 'exclusive, waits'), t.processlist_id,
       COALESCE(t.processlist_user, ''), COALESCE(t.processlist_host, ''), COALESCE(t.processlist_command, ''), COALESCE(t.processlist_time, 0)
  FROM performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id
 WHERE m.object_type = 'USER LEVEL LOCK' ORDER BY m.object_name, m.lock_status, t.processlist_id`

// namedLocksOfMariaDB lists named locks. MariaDB shows the holder of a lock, and of the waiters
// only that they wait.
const namedLocksOfMariaDB = `SELECT m.table_schema, 'exclusive', m.thread_id, COALESCE(p.user, ''), COALESCE(p.host, ''), COALESCE(p.command, ''), COALESCE(p.time, 0)
  FROM information_schema.metadata_lock_info m LEFT JOIN information_schema.processlist p ON p.id = m.thread_id
 WHERE m.lock_type = 'User lock' ORDER BY m.table_schema, m.thread_id`

// nativeLocks returns the statement that lists such locks, and the keys of a name.
func (d database) nativeLocks(ctx context.Context, name string) (statement string, keys []string, err error) {
	switch server, err := d.server(ctx); {
	case err != nil:
		return "", nil, err
	case server == migrate.Postgres:
		return advisoryLocks, []string{fmt.Sprint(postgres.AdvisoryKey(name)),
			fmt.Sprint(postgres.AdvisoryQueueKey(name))}, nil
	case server == mariaDB:
		return namedLocksOfMariaDB, namedKeys(name), nil
	case server == migrate.MySQL:
		return namedLocks, namedKeys(name), nil
	}
	return "", nil, usageError{errors.New("--native: SQLite has no locks of its own with names")}
}

func namedKeys(name string) []string {
	return []string{mysql.NamedKey(name), mysql.NamedKey(name) + "+"}
}

// natives lists the server's own locks: those of a name, or all for "".
func (d database) natives(ctx context.Context, name string) iter.Seq2[native, error] {
	return func(yield func(native, error) bool) {
		statement, keys, err := d.nativeLocks(ctx, name)
		if err != nil {
			yield(native{}, err)
			return
		}
		rows, err := d.QueryContext(ctx, statement)
		if err != nil {
			yield(native{}, withoutPlugin(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var n native
			var seconds float64
			if err := rows.Scan(&n.Key, &n.Kind, &n.PID, &n.User, &n.From, &n.State, &seconds); err != nil {
				yield(n, err)
				return
			}
			n.Age = time.Duration(seconds * float64(time.Second))
			if name == "" || slices.Contains(keys, n.Key) {
				n.Name = cmp.Or(name, plainName(n.Key))
				if !yield(n, nil) {
					return
				}
			}
		}
		if err := rows.Err(); err != nil {
			yield(native{}, err)
		}
	}
}

// plainName returns the name in a plain key (mysql.NamedKey); "": the key is hashed.
func plainName(key string) string {
	name, tells := strings.CutPrefix(strings.TrimSuffix(key, "+"), "dblock/")
	if !tells {
		return ""
	}
	return name
}

// withoutPlugin advises to install the plugin if MariaDB has no such table.
func withoutPlugin(err error) error {
	const unknownTable = 1109
	if errorNumber(err) == unknownTable {
		return fmt.Errorf("%w (MariaDB lists named locks after INSTALL SONAME 'metadata_lock_info'; SELECT "+
			"IS_USED_LOCK('KEY') tells who has one, dblock key NAME its key)", err)
	}
	return err
}
