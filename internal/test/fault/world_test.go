//go:build unix

package fault

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

// Limits that a slow machine has more of.
var (
	// ttl leaves heartbeats 400 ms each, which a loaded machine keeps to.
	ttl = dbtest.Scale(2 * time.Second)
	// promised is within what a crashed holder is succeeded.
	promised = ttl + time.Second
	// scheduling is what two processes and a server may lose on a machine with more to do than
	// cores, on top of what is promised.
	scheduling = dbtest.Scale(1500 * time.Millisecond)
	// patience is for what has no bound of its own: longer, and it hangs.
	patience = dbtest.Scale(30 * time.Second)
)

// world is a database and its clients.
type world struct {
	*testing.T
	db  dbtest.Database
	sql *sql.DB // one connection, past all proxies
}

// unstarved runs a scenario again which reports that a lock was lost for want of heartbeats: that
// may have been for want of a processor.
func (w *world) unstarved(scenario func(try string) (starved bool)) {
	w.Helper()
	for try := 1; scenario(fmt.Sprint(" ", try)); try++ {
		if try == 3 {
			w.Fatal("a lock was lost for want of heartbeats, three times")
		}
		w.Log("a lock was lost for want of heartbeats: once more")
	}
}

// starvation reports whether a lock was lost for want of heartbeats.
func starvation(reason string) bool {
	return strings.Contains(reason, session.ErrExpired.Error()) || strings.Contains(reason, session.ErrKilled.Error())
}

// each runs a scenario on every engine there is, on a fresh database.
func each(t *testing.T, scenario func(w *world)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		onceOnly(t, db)
		t.Parallel()
		scenario(newWorld(t, db))
	})
}

// eachAlone is each, one engine after the other and nothing beside it: for what needs the whole
// machine.
func eachAlone(t *testing.T, scenario func(w *world)) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		onceOnly(t, db)
		scenario(newWorld(t, db))
	})
}

// eachServer is each without SQLite, which has neither server nor network.
func eachServer(t *testing.T, scenario func(w *world)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		if db.Kind != dbtest.KindSQLite {
			onceOnly(t, db)
			t.Parallel()
			scenario(newWorld(t, db))
		}
	})
}

// onceOnly leaves out what is tried on another version of the server: it depends on clocks and
// processes.
func onceOnly(t *testing.T, db dbtest.Database) {
	t.Helper()
	if dbtest.Brief(db.Kind) {
		t.Skip("tried on another version of the server (DBLOCK_TEST_BRIEF)")
	}
}

func newWorld(t *testing.T, db dbtest.Database) *world {
	t.Helper()
	if db.Kind == dbtest.KindSQLite {
		db.DSN += "&_pragma=synchronous(OFF)" // processes are killed, the machine never
	}
	w := &world{T: t, db: db, sql: db.SQL(t)}
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
	config := actorConfig{Kind: w.db.Kind, DSN: w.db.DSN, TTL: ttl, Reaper: true}
	for _, f := range change {
		f(&config)
	}
	return spawn(w, label, config)
}

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
	if _, err := w.sql.ExecContext(w.Context(), statement); err != nil {
		w.Fatalf("%s: %v", statement, err)
	}
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
	eventually(w, p.label+" stands in the queue", func() bool { return w.waiters(name) == before+1 })
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
	left, there := w.number("SELECT h.expires_at - %s FROM dblock_heartbeats h JOIN dblock_locks l ON l.session_id = h.session_id WHERE l.name = '%s'", w.now(), name)
	if !there {
		w.Fatalf("nobody holds %q", name)
	}
	return asked + time.Duration(left)*time.Microsecond
}

// untilWaiterOver waits until the session of the first waiter for a name is over its time.
func (w *world) untilWaiterOver(name string) {
	w.Helper()
	eventually(w, "the waiter's session is over", func() bool {
		return w.count("SELECT count(*) FROM dblock_waiters q JOIN dblock_heartbeats h ON h.session_id = q.session_id WHERE q.name = '%s' AND h.expires_at <= %s AND q.ticket = (SELECT min(f.ticket) FROM dblock_waiters f WHERE f.name = '%[1]s')", name, w.now()) == 1
	})
}

// dump logs the tables, with how long each session still has.
func (w *world) dump() {
	w.Helper()
	for _, query := range []string{
		"SELECT 'lock', l.name, COALESCE(l.session_id, ''), l.attempt, l.waiters, COALESCE(e.expires_at - %s, 0) FROM dblock_locks l LEFT JOIN dblock_heartbeats e ON e.session_id = l.session_id",
		"SELECT 'waiter', q.name, q.session_id, q.attempt, q.ticket, COALESCE(e.expires_at - %s, 0) FROM dblock_waiters q LEFT JOIN dblock_heartbeats e ON e.session_id = q.session_id ORDER BY q.name, q.ticket",
	} {
		rows, err := w.sql.QueryContext(w.Context(), fmt.Sprintf(query, w.now()))
		if err != nil {
			w.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var what, name, session, attempt string
			var n, left int64
			if err := rows.Scan(&what, &name, &session, &attempt, &n, &left); err != nil {
				w.Fatal(err)
			}
			w.Logf("%s %s: session %s, attempt %s, waiters or ticket %d, has %v", what, name, session, attempt, n, time.Duration(left)*time.Microsecond)
		}
		if err := rows.Err(); err != nil {
			w.Fatal(err)
		}
	}
}

// eventually polls a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !within(patience, condition) {
		t.Fatalf("not in %v: %s", patience, what)
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
