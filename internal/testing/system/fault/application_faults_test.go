//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// valve is a logger that stands still while it is shut.
type valve struct {
	slog.Handler

	mu   sync.Mutex // protects open
	open chan struct{}
}

func newValve() *valve {
	v := &valve{open: make(chan struct{})}
	close(v.open)
	return v
}

// set opens the valve, or shuts it.
func (v *valve) set(open bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.open:
		if !open {
			v.open = make(chan struct{})
		}
	default:
		if open {
			close(v.open)
		}
	}
}

// pass waits until the valve is open.
func (v *valve) pass() {
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	<-open
}

func (v *valve) Enabled(context.Context, slog.Level) bool  { return true }
func (v *valve) Handle(context.Context, slog.Record) error { v.pass(); return nil }
func (v *valve) WithAttrs([]slog.Attr) slog.Handler        { return v }
func (v *valve) WithGroup(string) slog.Handler             { return v }

// disturb shuts the logger and the observer of one client after the other, and cuts its network
// meanwhile, until ctx ends.
func (a *application) disturb(ctx context.Context) {
	for ctx.Err() == nil {
		calm, cancel := context.WithTimeout(ctx, ttl/4) // in which sessions begin, and locks are held
		<-calm.Done()
		cancel()
		b := a.branches[a.random.IntN(len(a.branches))]
		b.log.set(false)
		heal := func() {}
		if b.proxy != nil {
			heal = b.proxy.Heal
			a.tried("network faults", 1)
			switch a.random.IntN(3) {
			case 0:
				b.proxy.Freeze()
			case 1:
				b.proxy.Cut()
			default:
				b.proxy.DropReplies()
			}
		}
		long := time.Duration(a.random.Int64N(int64(2 * ttl)))
		if a.bug == bugLogsFirst { // which shows where a session ends
			long = 2 * ttl
		}
		brief, cancel := context.WithTimeout(ctx, long)
		<-brief.Done()
		cancel()
		heal()
		b.log.set(true)
		a.tried("loggers stopped", 1)
	}
}

// kill ends statements of the application's, whatever they are, until ctx ends. SQLite has none.
func (a *application) kill(ctx context.Context) {
	if a.db.Kind == dbtest.KindSQLite {
		return
	}
	for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		if a.db.Kind == dbtest.KindPostgres {
			_, _ = a.sql.ExecContext(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = "+
				"current_database() AND pid <> pg_backend_pid() AND state = 'active' ORDER BY random() LIMIT 1")
		} else {
			var id int64
			query := "SELECT id FROM " + a.db.Processes() +
				" WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' ORDER BY rand() LIMIT 1"
			if a.sql.QueryRowContext(ctx, query).Scan(&id) != nil {
				continue
			}
			_, _ = a.sql.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", id))
		}
		a.tried("kills", 1)
	}
}

// miscounted are the names whose counters are not what their rows say. Whatever goes on, one
// statement sees what whole transactions have left.
const miscounted = `SELECT count(*) FROM dblock_locks l WHERE
	l.waiters <> (SELECT COALESCE(sum(q.members), 0) FROM dblock_waiters q WHERE q.name = l.name) OR
	l.shared_units <> (SELECT COALESCE(sum(s.units), 0) FROM dblock_shares s WHERE s.name = l.name)`

// count compares counters with rows, until ctx ends.
func (a *application) count(ctx context.Context) {
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		var wrong int
		if err := a.sql.QueryRowContext(ctx, miscounted).Scan(&wrong); err == nil && wrong > 0 {
			a.Errorf("%s: of %d names", miscounts, wrong)
			return
		}
	}
}

// leftInTables waits until nobody has anything any more.
func (a *application) leftInTables() {
	a.Helper()
	const left = "SELECT (SELECT count(*) FROM dblock_waiters) + (SELECT count(*) FROM dblock_shares) + (SELECT " +
		"count(*) FROM dblock_locks WHERE session_id IS NOT NULL)"
	limit := patience
	if a.bug != "" {
		limit = ttl
	}
	if !within(limit, func() bool { return a.number0(left) == 0 && a.number0(miscounted) == 0 }) {
		a.Errorf("%s: in %v of rest %d rows were not given back, and %d names are counted wrong", leaks, limit,
			a.number0(left), a.number0(miscounted))
		a.dump()
	}
}

// number0 is the result of a query, -1 where it fails.
func (a *application) number0(query string) (n int) {
	if err := a.sql.QueryRowContext(a.Context(), query).Scan(&n); err != nil {
		return -1
	}
	return n
}

// sessionStates lists what a session of a server has beside its transaction, a line each. It leaves
// out what differs between any two sessions.
var sessionStates = map[string]string{
	dbtest.KindPostgres: `SELECT name || '=' || setting FROM pg_settings WHERE source = 'session'
		UNION ALL SELECT 'lock ' || locktype || objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
		UNION ALL SELECT 'listens ' || c FROM pg_listening_channels() c ORDER BY 1`,
	dbtest.KindSQLite: `SELECT 'busy_timeout=' || timeout FROM pragma_busy_timeout
		UNION ALL SELECT 'foreign_keys=' || foreign_keys FROM pragma_foreign_keys
		UNION ALL SELECT 'synchronous=' || synchronous FROM pragma_synchronous
		UNION ALL SELECT 'query_only=' || query_only FROM pragma_query_only`,
	dbtest.KindMySQL: `SELECT CONCAT(variable_name, '=', variable_value) FROM performance_schema.session_variables
		WHERE variable_name NOT IN ('pseudo_thread_id', 'timestamp', 'last_insert_id', 'identity', 'insert_id', 'rand_seed1', 'rand_seed2', 'warning_count', 'error_count', 'statement_id')
		UNION ALL SELECT CONCAT('locks ', RELEASE_ALL_LOCKS()) ORDER BY 1`,
	dbtest.KindMariaDB: `SELECT CONCAT(variable_name, '=', session_value) FROM information_schema.system_variables
		WHERE session_value IS NOT NULL AND variable_name NOT IN ('PSEUDO_THREAD_ID', 'TIMESTAMP', 'LAST_INSERT_ID', 'IDENTITY', 'INSERT_ID', 'RAND_SEED1', 'RAND_SEED2', 'WARNING_COUNT', 'ERROR_COUNT', 'LAST_GTID')
		UNION ALL SELECT CONCAT('locks ', RELEASE_ALL_LOCKS()) ORDER BY 1`,
}

// leftOnConnections compares every idle connection of every pool with a new one.
func (a *application) leftOnConnections() {
	a.Helper()
	for _, b := range a.branches {
		pool := a.db.SQL(a) // the same settings, and no history
		want, err := sessionState(a, pool.QueryContext)
		require.NoError(a, err)
		for range b.pool.Stats().Idle {
			conn, err := b.pool.Conn(a.Context()) // kept, so that the next one is another
			require.NoError(a, err)
			defer conn.Close()
			if a.places.home != "" {
				_, _ = conn.ExecContext(a.Context(), a.places.home)
			}
			is, err := sessionState(a, conn.QueryContext)
			if err != nil {
				continue // a connection that was cut, which the pool throws away
			}
			a.tried("connections looked at", 1)
			if i := slices.IndexFunc(is, func(line string) bool { return !slices.Contains(want, line) }); i >= 0 ||
				len(is) != len(want) {
				a.Errorf("%s: a pooled connection has %s", borrowings,
					strings.Join(slices.DeleteFunc(is, func(line string) bool { return slices.Contains(want, line) }),
						", "))
			}
		}
	}
}

// sessionState is what the connection of a query has.
func sessionState(
	a *application, query func(ctx context.Context, text string, args ...any) (*sql.Rows, error),
) (lines []string, err error) {
	rows, err := query(a.Context(), sessionStates[a.db.Kind])
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}
