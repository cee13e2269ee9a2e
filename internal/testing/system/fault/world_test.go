//go:build unix

package fault

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	// ttl leaves heartbeats 400 ms each.
	ttl = 2 * time.Second
	// patience is a bound against hanging, and says nothing about how long anything may take.
	patience = 2 * time.Minute
)

// world is a database and its clients, in one round of a kind. What is wrong in it is a violation:
// it fails the round, or, where a bug was seeded, it has been found.
type world struct {
	*testing.T
	*round
	db  dbtest.Database
	sql *sql.DB // one connection, past all proxies
}

// starvation reports whether a lock was lost for want of heartbeats. On a machine with more to do
// than processors that is no fault of dblock.
func starvation(reason string) bool {
	return strings.Contains(reason, session.ErrExpired.Error()) || strings.Contains(reason, session.ErrKilled.Error())
}

// starved ends a scenario that means nothing any more, since the machine had no time for heartbeats
// or for an answer.
func (w *world) starved(reason string) {
	w.Helper()
	w.tried("void", 1)
	w.Skip(reason)
}

func (w *world) Errorf(format string, args ...any) {
	w.Helper()
	w.violation(w.T, fmt.Sprintf(format, args...))
}

func (w *world) Error(args ...any) { w.Helper(); w.violation(w.T, fmt.Sprint(args...)) }

func (w *world) Fatalf(format string, args ...any) {
	w.Helper()
	w.Errorf(format, args...)
	w.SkipNow() // a failed test that skips has failed
}

func (w *world) Fatal(args ...any) { w.Helper(); w.Fatalf("%s", fmt.Sprint(args...)) }

func newWorld(t *testing.T, r *round, db dbtest.Database) *world {
	t.Helper()
	w := &world{T: t, round: r, db: db, sql: db.SQL(t)}
	w.sql.SetMaxOpenConns(1)
	w.exec("CREATE TABLE resource (name varchar(64) PRIMARY KEY, token bigint NOT NULL, n bigint NOT NULL)")
	return w
}

// resource makes what a lock of the name protects.
func (w *world) resource(names ...string) {
	w.Helper()
	for _, name := range names {
		w.exec(fmt.Sprintf("INSERT INTO resource (name, token, n) VALUES ('%s', 0, 0)", name))
	}
}

// actor starts one that is configured by change.
func (w *world) actor(label string, change ...func(c *actorConfig)) *process {
	w.Helper()
	config := actorConfig{Kind: w.db.Kind, DSN: w.db.DSN, TTL: ttl, Reaper: true, Bug: w.bug}
	for _, f := range change {
		f(&config)
	}
	return spawn(w, label, config)
}

// elsewhere gives each actor a host of its own.
func (w *world) elsewhere(c *actorConfig) { c.Host = w.TempDir() }

func withoutReaper(c *actorConfig) { c.Reaper = false }

// through makes the actor reach its server through a proxy.
func (w *world) through(p *dbtest.Proxy) func(c *actorConfig) {
	w.Helper()
	dsn := w.db.Through(w, p).DSN
	return func(c *actorConfig) { c.DSN = dsn }
}

func (w *world) proxy() *dbtest.Proxy {
	w.Helper()
	return dbtest.NewProxy(w, w.db.Addr(w))
}

func (w *world) exec(statement string) {
	w.Helper()
	require.NoError(w, require.ErrOf(w.sql.ExecContext(w.Context(), statement)), statement)
}

// number is the result of a query; false: no row.
func (w *world) number(query string, args ...any) (n int64, there bool) {
	w.Helper()
	err := w.sql.QueryRowContext(w.Context(), fmt.Sprintf(query, args...)).Scan(&n)
	if err != nil && err != sql.ErrNoRows {
		w.Fatalf("%s: %v", query, err)
	}
	return n, err == nil
}

// count is the result of a query that always has one.
func (w *world) count(query string, args ...any) int64 {
	w.Helper()
	n, _ := w.number(query, args...)
	return n
}

// waiters is how many stand in a name's queue.
func (w *world) waiters(name string) int64 {
	w.Helper()
	return w.count("SELECT count(*) FROM dblock_waiters WHERE name = '%s'", name)
}

// queue begins to lock a name, and returns when the actor stands in its queue.
func (w *world) queue(p *process, name string) int {
	w.Helper()
	before := w.waiters(name)
	op := p.lock(name)
	eventually(w, p.label+" stands in the queue", func() bool {
		p.unanswered(op)
		return w.waiters(name) == before+1
	})
	return op
}

func (w *world) now() string {
	if w.db.Kind == dbtest.KindPostgres {
		return "dblock_now()"
	}
	return "(SELECT now_us FROM dblock_clock)"
}

// leaseEnd is before when the holder's lease cannot end, by this machine's clock: heartbeats only
// move it away.
func (w *world) leaseEnd(name string) time.Duration {
	w.Helper()
	asked := session.Boottime()
	left, there := w.number("SELECT h.expires_at - %s FROM dblock_heartbeats h JOIN dblock_locks l ON l.session_id "+
		"= h.session_id WHERE l.name = '%s'", w.now(), name)
	if !there {
		w.Fatalf("nobody holds %q", name)
	}
	return asked + time.Duration(left)*time.Microsecond
}

// dump logs the tables, with how long each session still has.
func (w *world) dump() {
	w.Helper()
	for _, query := range []string{
		"SELECT 'lock', l.name, COALESCE(l.session_id, ''), l.attempt, l.waiters, COALESCE(e.expires_at - %s, 0) " +
			"FROM dblock_locks l LEFT JOIN dblock_heartbeats e ON e.session_id = l.session_id",
		"SELECT 'waiter', q.name, q.session_id, q.attempt, q.ticket, COALESCE(e.expires_at - %s, 0) FROM " +
			"dblock_waiters q LEFT JOIN dblock_heartbeats e ON e.session_id = q.session_id ORDER BY q.name, q.ticket",
	} {
		rows, err := w.sql.QueryContext(w.Context(), fmt.Sprintf(query, w.now()))
		require.NoError(w, err)
		defer rows.Close()
		for rows.Next() {
			var what, name, session, attempt string
			var n, left int64
			require.NoError(w, rows.Scan(&what, &name, &session, &attempt, &n, &left))
			w.Logf("%s %s: session %s, attempt %s, waiters or ticket %d, has %v", what, name, session, attempt, n,
				time.Duration(left)*time.Microsecond)
		}
		require.NoError(w, rows.Err())
	}
}

// eventually polls a condition.
func eventually(w testing.TB, what string, condition func() bool) {
	w.Helper()
	if !within(patience, condition) {
		w.Fatalf("not in %v: %s", patience, what)
	}
}

// within polls a condition, and reports whether it came true in time.
func within(limit time.Duration, condition func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := session.Boottime() + limit; ; <-tick.C {
		late := session.Boottime() > end
		if condition() {
			return true
		}
		if late {
			return false
		}
	}
}

// pass lets time pass: the duration of a fault.
func pass(d time.Duration) {
	<-time.After(d)
}
