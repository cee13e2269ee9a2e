package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	internals "github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var closings = inPlaces(moving{
	{"Close returns in time, and the session ends, although the application has the whole pool", closeExhausted},
	{"Close returns in time, and the session ends, although somebody has locked the table", closeLocked},
	{"Close returns in time, and the session ends, although the pool was closed first", closeAfterPool},
	{"Close returns in time, and the session ends, although a job ignores its context", closeBesideJob},
	{"a closed client answers who waits for a question about locks", closeBesideInspect},
})

// closingSoon has Close give up soon.
var closingSoon = *inside.Make[dblock.Option](func(c *internals.Config) { c.Closing = time.Second / 2 })

// closeInTime closes a client whose Close cannot do its work, and says why not.
func (e *env) closeInTime(t *testing.T, c Client, held ...*dblock.Lock) error {
	t.Helper()
	closed := async(func() error { return c.Close(context.Background()) })
	for _, l := range held {
		ended(t, soon, l, dblock.ErrClosed)
	}
	err := within(t, soon, "Close returns", closed)
	assert.Error(t, err, "Close says that it has done its work")
	assert.Equal(t, c.Stats().Session, "", "the session that goes on")
	return err
}

// expires checks that what a closed client could not release is free after a TTL: it sends no
// heartbeats any more. One that was on its way may still be counted from a later time.
func (e *env) expires(t *testing.T, names ...string) {
	t.Helper()
	b := e.client(t)
	for _, name := range names {
		e.advanceUntil(t, 3*longTTL, "the lock has expired", func() bool {
			l, err := b.TryLock(context.Background(), name)
			if err == nil {
				unlock(t, l)
			}
			return err == nil
		})
	}
}

func closeExhausted(t *testing.T, e *env) {
	a := e.app(t, 5)
	if a.borrow == nil || e.wiring.Kind == SQLite || e.wiring.plain() {
		// no pool, or one that work of its own does not go through
		t.Skip("no pool that could be exhausted")
	}
	c := e.clientOf(t, a, closingSoon)
	first, second := lock(t, c, "first"), lock(t, c, "second")
	giveBack := e.exhaust(t, a)
	defer giveBack()
	e.closeInTime(t, c, first, second)
	e.expires(t, "first", "second")
}

// lockTable locks dblock's table of locks as an application's migration or a backup does.
func (e *env) lockTable(t *testing.T) (unlock func()) {
	t.Helper()
	if e.wiring.plain() {
		t.Skip("LOCK TABLES locks nothing")
	}
	conn, err := e.db.SQL(t).Conn(t.Context())
	require.NoError(t, err)
	run := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			eventually(t, patience, s, func() bool {
				_, err := conn.ExecContext(context.Background(), s)
				return err == nil
			})
		}
	}
	switch e.wiring.Kind {
	case Postgres:
		run("BEGIN", "LOCK TABLE dblock_locks IN ACCESS EXCLUSIVE MODE")
	case SQLite:
		run("BEGIN EXCLUSIVE")
	default:
		run("LOCK TABLES dblock_locks WRITE")
	}
	return func() {
		t.Helper()
		switch e.wiring.Kind {
		case Postgres, SQLite:
			run("ROLLBACK")
		default:
			run("UNLOCK TABLES")
		}
		_ = conn.Close()
	}
}

func closeLocked(t *testing.T, e *env) {
	e.needsSQL(t)
	c := e.client(t, closingSoon)
	first, second := lock(t, c, "first"), lock(t, c, "second", dblock.Shared())
	unlockTable := e.lockTable(t)
	e.closeInTime(t, c, first, second)
	unlockTable()
	e.expires(t, "first", "second")
}

func closeAfterPool(t *testing.T, e *env) {
	e.needsSQL(t)
	a := e.app(t, 5)
	c := e.clientOf(t, a, closingSoon)
	l := lock(t, c, "n")
	a.close()
	if e.wiring.plain() { // whose work is done on connections that the client has reserved
		is(t, c.Close(brief(t)), nil)
		e.free(t, "n")
		return
	}
	is(t, e.closeInTime(t, c, l), dblock.ErrConfig)
	e.expires(t, "n")
}

func closeBesideJob(t *testing.T, e *env) {
	c := e.client(t, closingSoon)
	l := lock(t, c, "n")
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.OncePer(context.Background(), "job", time.Hour, func(context.Context, *dblock.Lock, time.Time) error {
			close(began)
			<-end
			return nil
		})
	}()
	within(t, patience, "the job runs", began)
	e.closeInTime(t, c, l)
	unlock(t, lock(t, e.client(t), "n")) // it was released
	e.expires(t, "once/job")
	close(end)
	within(t, patience, "the job ends", done)
}

func closeBesideInspect(t *testing.T, e *env) {
	e.needsSQL(t)
	c := e.clientOf(t, e.app(t, 8), closingSoon)
	reads := e.wiring.Kind == SQLite // beside whoever writes
	lock(t, c, "n")
	unlockTable := e.lockTable(t)
	defer unlockTable()
	questions := map[string]func(ctx context.Context) error{
		"Inspect": func(ctx context.Context) error { _, err := c.Inspect(ctx, "n"); return err },
		"List": func(ctx context.Context) (err error) {
			for _, err = range c.List(ctx, inspect.Filter{}) {
			}
			return err
		},
	}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	answers := map[string]chan error{}
	for what, ask := range questions {
		answer := make(chan error, 1)
		answers[what] = answer
		if err := ask(brief); err == nil && !reads {
			t.Errorf("%s: answered beside a locked table", what)
		}
		go func() { answer <- ask(context.Background()) }()
	}
	e.closeInTime(t, c)
	for what, answer := range answers {
		if err := within(t, soon, what+" returns", answer); !(err == nil && reads) &&
			!errors.Is(err, dblock.ErrClosed) && !errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
