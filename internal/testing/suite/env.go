package suite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// Limits that grow on a slow machine.
var (
	// longTTL is for tests in which no lease ends. A client looks at the database without a hint
	// after a third of it.
	longTTL = dbtest.Scale(30 * time.Second)
	// soon is the limit for anything that waits for no lease. It is less than a third of longTTL,
	// so that a lost hint shows.
	soon = dbtest.Scale(8 * time.Second)
	// patience is the limit for anything at all.
	patience = dbtest.Scale(20 * time.Second)
)

// env is what one test works with: a database, of its own unless it stands in a list of sharing.
type env struct {
	wiring Wiring
	db     dbtest.Database
	look   *sql.DB // the test's own connection

	clocks *clocks // nil: nobody moves the clock
}

func newEnv(t *testing.T, w Wiring) *env { return envIn(t, w, dbtest.Warm(t, w.Kind)) }

// movingEnv is one with clocks that move.
func movingEnv(t *testing.T, w Wiring) *env {
	if w.Through != nil {
		e := newEnv(t, w)
		e.move(t, "")
		return e
	}
	db := dbtest.Prepared(t, w.Kind, "a clock that moves", func(db dbtest.Database) { movable(t, db) })
	e := envIn(t, w, db)
	e.move(t, db.DSN)
	return e
}

// emptyEnv is one without dblock's tables.
func emptyEnv(t *testing.T, w Wiring) *env { return envIn(t, w, dbtest.Empty(t, w.Kind)) }

func envIn(t *testing.T, w Wiring, db dbtest.Database) *env {
	e := &env{wiring: w, db: db}
	if w.Usual != nil {
		e.db.DSN = w.Usual.DSN(e.db.DSN)
	}
	e.open(t)
	return e
}

func (e *env) open(t *testing.T) {
	e.look = e.db.SQL(t)
	e.look.SetMaxOpenConns(1) // so that a test that kills connections knows which one is its own
}

// set makes everything in the test use sessions with an application's settings.
func (e *env) set(t *testing.T, s Setting) {
	_ = e.look.Close() // SQLite changes some settings only while nobody else has the file
	e.db.DSN = s.DSN(e.db.DSN)
	e.open(t)
}

// app opens a pool of its own, as another process would.
func (e *env) app(t testing.TB, connections int) App {
	t.Helper()
	if e.wiring.reserves() || e.wiring.Kind == Postgres && e.wiring.Name != "pgx" {
		connections++ // for work of the client's own that may wait for a row
	}
	a := e.wiring.Open(t, e.db, connections)
	if e.clocks != nil && e.wiring.ByView != nil {
		e.wiring.ByView(a.Backend)
	}
	return a
}

// client makes a client with a pool of its own, and closes it when the test has ended.
func (e *env) client(t testing.TB, options ...dblock.Option) Client {
	t.Helper()
	connections := 3
	if e.wiring.reserves() {
		connections += 2 // those that the client reserves, which pgx opens beside the pool
	}
	return e.clientOf(t, e.app(t, connections), options...)
}

func (e *env) clientOf(t testing.TB, a App, options ...dblock.Option) Client {
	t.Helper()
	log := testlog.New(t.Output(), t.Error)
	c, err := newClient(a, slices.Concat([]dblock.Option{dblock.WithLogger(log), dblock.WithTTL(longTTL)}, options,
		e.timed(a))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Logf("closing a client: %v", err)
		}
	})
	return c
}

// appClient makes a client, and returns it with its pool, for transactions.
func (e *env) appClient(t testing.TB, connections int, options ...dblock.Option) (App, Client) {
	t.Helper()
	a := e.app(t, connections)
	return a, e.clientOf(t, a, options...)
}

// exec runs a statement and returns how many rows it changed.
func (e *env) exec(t testing.TB, statement string, args ...any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var result sql.Result
	// The application is at work meanwhile: a deadlock with it is the test's to survive.
	eventually(t, patience, "the statement can run: "+statement, func() bool {
		var err error
		e.through(t, true, func() { result, err = e.look.ExecContext(ctx, e.db.Text(statement), args...) })
		if err != nil {
			t.Logf("%s: %v", statement, err)
		}
		return err == nil
	})
	n, err := result.RowsAffected()
	require.NoError(t, err)
	return int(n)
}

// through runs a statement of the test's own, which may change the tables.
func (e *env) through(t testing.TB, change bool, do func()) {
	t.Helper()
	if e.wiring.Through == nil {
		do()
		return
	}
	e.wiring.Through(t, e.db, e.look, change, do)
}

// needsDown ends a test on a database whose tables cannot be taken away.
func (e *env) needsDown(t testing.TB) {
	t.Helper()
	if e.wiring.Kind == Vitess {
		t.Skip("vtgate does not find a view that is to be dropped")
	}
}

// needsSQL ends a test on an engine that has no SQL: no pool, no migrations.
func (e *env) needsSQL(t testing.TB) {
	t.Helper()
	if e.wiring.Through != nil {
		t.Skip("there is no SQL")
	}
}

// number reads one number; 0 where there is no row.
func (e *env) number(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	var n sql.NullInt64
	e.read(t, query, &n, args...)
	return n.Int64
}

// text reads one text; "" where there is no row.
func (e *env) text(t testing.TB, query string, args ...any) string {
	t.Helper()
	var s sql.NullString
	e.read(t, query, &s, args...)
	return s.String
}

func (e *env) read(t testing.TB, query string, into any, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	e.through(t, false, func() { err = e.look.QueryRowContext(ctx, e.db.Text(query), args...).Scan(into) })
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatalf("%s: %v", query, err)
	}
}

// now is the database's clock, in microseconds.
func (e *env) now(t testing.TB) int64 {
	t.Helper()
	switch {
	case e.clocks != nil && e.wiring.Through != nil:
		return e.app(t, 1).mover.Micros()
	case e.wiring.Kind == Postgres:
		return e.number(t, "SELECT dblock_now()")
	}
	return e.number(t, "SELECT now_us FROM dblock_clock")
}

// waiting is how many requests the queue of a name has: the members of all places.
func (e *env) waiting(t testing.TB, name string) int {
	t.Helper()
	return int(e.number(t, "SELECT sum(members) FROM dblock_waiters WHERE name = ?", name))
}

// queued waits until the queue of a name has exactly so many requests.
func (e *env) queued(t testing.TB, name string, n int) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("%d wait for %q", n, name), func() bool { return e.waiting(t, name) == n })
}

// free waits until a name has no holder and no waiter, and its row says so.
func (e *env) free(t testing.TB, name string) {
	t.Helper()
	eventually(t, soon, fmt.Sprintf("%q is free and nobody waits", name), func() bool {
		return e.waiting(t, name) == 0 &&
			e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = ? AND (session_id IS NOT NULL OR waiters <> 0)",
				name) == 0
	})
}

// session returns the session that holds a name, "" if none does.
func (e *env) session(t testing.TB, name string) string {
	t.Helper()
	return e.text(t, "SELECT session_id FROM dblock_locks WHERE name = ?", name)
}

// end declares a session dead, as another client would do with an expired one.
func (e *env) end(t testing.TB, session string) {
	t.Helper()
	e.exec(t, "UPDATE dblock_sessions SET dead = (1 = 1) WHERE id = ?", session)
	e.exec(t, "DELETE FROM dblock_heartbeats WHERE session_id = ?", session)
}

// eventually polls until a condition holds.
func eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for tick := time.NewTicker(3 * time.Millisecond); ; <-tick.C {
		if so() {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			tick.Stop()
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// within waits for something to arrive.
func within[T any](t testing.TB, d time.Duration, what string, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatalf("not within %v: %s", d, what)
	}
	return v
}

// outcome is what a Lock in the background returned.
type outcome struct {
	lock *dblock.Lock
	err  error
}

// locking calls Lock in the background.
func locking(ctx context.Context, c Client, name string, options ...dblock.LockOption) <-chan outcome {
	return async(func() outcome {
		l, err := c.Lock(ctx, name, options...)
		return outcome{l, err}
	})
}

// async calls f in the background.
func async[T any](f func() T) chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// stillWaits checks that a call in the background does not return for a while.
func stillWaits[T any](t testing.TB, d time.Duration, call <-chan T) {
	t.Helper()
	time.Sleep(d)
	select {
	case got := <-call:
		t.Fatalf("it has returned already: %v", got)
	default:
	}
}

// waiter calls Lock in the background, and returns when the call is in the queue.
func (e *env) waiter(t testing.TB, c Client, name string, options ...dblock.LockOption) <-chan outcome {
	t.Helper()
	before := e.waiting(t, name)
	waiter := locking(context.Background(), c, name, options...)
	e.queued(t, name, before+1)
	return waiter
}

// granted waits for the lock that a locking call gets.
func granted(t testing.TB, d time.Duration, c <-chan outcome) *dblock.Lock {
	t.Helper()
	o := within(t, d, "the lock is granted", c)
	require.NoError(t, o.err)
	return o.lock
}

// lock locks at once.
func lock(t testing.TB, c Client, name string, options ...dblock.LockOption) *dblock.Lock {
	t.Helper()
	return granted(t, patience, locking(context.Background(), c, name, options...))
}

// unlock unlocks what must be held.
func unlock(t testing.TB, l *dblock.Lock) {
	t.Helper()
	require.NoError(t, l.Unlock(context.Background()))
}

// is checks an error against all that it must be.
func is(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error %v: want one that is %v", err, w)
		}
	}
}

// says checks an error, and that its text has all parts.
func says(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	is(t, err, kind)
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// saysOnce checks that the text of an error is one line, which has a part once.
func saysOnce(t testing.TB, err, kind error, part string) {
	t.Helper()
	is(t, err, kind)
	if text := err.Error(); strings.Count(text, part) != 1 || strings.Contains(text, "\n") {
		t.Errorf("the text is %q: want %q in it once", text, part)
	}
}

// calledOff checks that a wait ended with its context. Whether it had seen a holder depends on how
// far it had come: a waiter may be in the queue before its client has the answer.
func calledOff(t testing.TB, err, cause error) {
	t.Helper()
	is(t, err, cause)
	if !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrUnavailable) {
		t.Fatalf("error %v: want ErrNotAcquired, or ErrUnavailable where nobody was seen", err)
	}
}

// refused checks that TryLock finds a name taken.
func refused(t testing.TB, c Client, name string, options ...dblock.LockOption) *dblock.NotAcquiredError {
	t.Helper()
	l, err := c.TryLock(context.Background(), name, options...)
	if err == nil {
		t.Fatalf("TryLock got %q, with token %d: want ErrNotAcquired", name, l.Token())
	}
	is(t, err, dblock.ErrNotAcquired)
	var e *dblock.NotAcquiredError
	if !errors.As(err, &e) {
		t.Fatalf("error %v: want a *NotAcquiredError", err)
	}
	return e
}

// ended waits until a lock's context has ended, and checks why.
func ended(t testing.TB, d time.Duration, l dblock.Handle, cause error) {
	t.Helper()
	within(t, d, fmt.Sprintf("the context of %q ends", l.Name()), l.Context().Done())
	is(t, context.Cause(l.Context()), cause)
}

// live checks that a lock is still held.
func live(t testing.TB, l dblock.Handle) {
	t.Helper()
	if l.Context().Err() != nil {
		t.Fatalf("%q was lost: %v", l.Name(), context.Cause(l.Context()))
	}
}

// id is a session id that no other test has.
func id() string { return rand.Text() }
