// Package contracts tests what every engine does beside its transitions: what it reads, lists,
// counts, deletes and writes down. Package oracle compares the transitions with package protocol.
//
// The tests call the engine's driver.Backend and change the tables with SQL. Each engine brings a
// way to open it and nothing else.
package contracts

import (
	"context"
	"crypto/rand"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// test is one sentence about an engine.
type test struct {
	says string
	run  func(w *world)
}

// Run runs the tests on an engine, each in a database of its own.
func Run(t *testing.T, kind string, open func(t testing.TB, db dbtest.Database) driver.Backend) {
	for _, test := range slices.Concat(reading, living, sweeping, recording) {
		t.Run(test.says, func(t *testing.T) {
			db := dbtest.Warm(t, kind)
			w := &world{T: t, Backend: open(t, db), db: db, tables: db.SQL(t), ctx: t.Context()}
			t.Cleanup(w.Attend("contracts", time.Hour))
			test.run(w)
		})
	}
}

// world is an engine and its tables.
type world struct {
	*testing.T
	driver.Backend
	db     dbtest.Database
	tables *sql.DB
	ctx    context.Context
}

// must ends the test after an error.
func (w *world) must(err error) {
	w.Helper()
	require.NoError(w, err)
}

// exec changes the tables.
func (w *world) exec(statement string, args ...any) {
	w.Helper()
	_, err := w.tables.ExecContext(w.ctx, w.db.Text(statement), args...)
	w.must(err)
}

// number reads a number from the tables.
func (w *world) number(query string, args ...any) (n int64) {
	w.Helper()
	w.must(w.tables.QueryRowContext(w.ctx, w.db.Text(query), args...).Scan(&n))
	return n
}

// session opens a session.
func (w *world) session() string {
	w.Helper()
	id := rand.Text()
	w.must(w.OpenSession(w.ctx, driver.Session{ID: id, Host: "here", PID: 1, App: "test", TTL: time.Hour}))
	return id
}

// lapse lets a session expire.
func (w *world) lapse(session string) {
	w.Helper()
	w.exec("UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", session)
}

// beats sends a heartbeat, and compares whether the session lives.
func (w *world) beats(session string, want bool) {
	w.Helper()
	up, err := w.Upkeep(w.ctx, session)
	w.must(err)
	defer up.Close()
	if alive, err := up.Heartbeat(w.ctx, session, time.Hour); err != nil || alive != want {
		w.Fatalf("heartbeat: alive %v, %v; want %v", alive, err, want)
	}
}

// expires has a session ended if it has expired, and compares whether it is dead.
func (w *world) expires(session string, want bool) {
	w.Helper()
	if dead, err := w.Expire(w.ctx, session); err != nil || dead != want {
		w.Fatalf("expire: dead %v, %v; want %v", dead, err, want)
	}
}

// whole is a request for a name.
func whole(name, session string) protocol.Request {
	return protocol.Request{Name: name, Session: session, Host: "h", Thread: session, Attempt: rand.Text(),
		Patient: true}
}

// units is a request for units of a name.
func units(name, session string, n, of int) protocol.Request {
	r := whole(name, session)
	r.Units, r.Of = n, of
	return r
}

// reader is a request to share a name.
func reader(name, session string) protocol.Request { return units(name, session, 1, protocol.Readers) }

// take makes a request that is granted at once.
func (w *world) take(r protocol.Request) protocol.Held {
	w.Helper()
	taken, err := driver.Do(w.ctx, w.Backend, protocol.Take{Request: r})
	if err != nil || !taken.Done() {
		w.Fatalf("%+v: %+v, %v", r, taken, err)
	}
	return protocol.Held{Name: r.Name, Session: r.Session, Token: taken.Grant.Token, Shared: r.Units > 0}
}

// queue makes a request that waits, and returns its attempt.
func (w *world) queue(r protocol.Request) string {
	w.Helper()
	if joined, err := driver.Do(w.ctx, w.Backend, protocol.Join{Request: r}); err != nil ||
		joined.Outcome != protocol.Queued {
		w.Fatalf("%+v: %+v, %v", r, joined, err)
	}
	return r.Attempt
}

// place makes a request that waits, and returns its place.
func (w *world) place(r protocol.Request) driver.Waiting {
	w.Helper()
	return driver.Waiting{Name: r.Name, Attempt: w.queue(r)}
}

// release releases a lock, and compares which attempts are granted.
func (w *world) release(h protocol.Held, attempts ...string) []protocol.Handoff {
	w.Helper()
	next, err := drivertest.Release(w.ctx, w.Backend, h, true)
	w.must(err)
	w.went(next, attempts...)
	return next
}

// takeOver takes a name from a holder or a place from a waiter, and compares whether that was done
// and which attempts are granted.
func (w *world) takeOver(name string, h protocol.Holder, want bool, attempts ...string) {
	w.Helper()
	next, taken, err := drivertest.TakeOver(w.ctx, w.Backend, "", name, h)
	if err != nil || taken != want {
		w.Fatalf("taken over from %+v: %v, %v; want %v", h, taken, err, want)
	}
	w.went(next, attempts...)
}

// went compares which attempts were granted.
func (w *world) went(next []protocol.Handoff, attempts ...string) {
	w.Helper()
	var got []string
	for _, n := range next {
		got = append(got, n.Attempt)
	}
	if !slices.Equal(got, attempts) {
		w.Fatalf("granted to %q, want %q", got, attempts)
	}
}

// look reads a name that has a row.
func (w *world) look(session, name string) driver.State {
	w.Helper()
	states, err := w.Read(w.ctx, session, []string{name}, 0)
	if err != nil || len(states) != 1 {
		w.Fatalf("look at %q: %+v, %v", name, states, err)
	}
	return states[0]
}

// about reports whether a duration is an hour, as far as a test can tell.
func about(d time.Duration) bool { return d > 59*time.Minute && d <= time.Hour+step }

// step is the time that an engine adds to a lease because its clock moves in steps: TiDB does.
const step = 50 * time.Millisecond

// recent reports whether a time is that of the test.
func recent(t time.Time) bool { return time.Since(t).Abs() < time.Minute }
