package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var detaching = inPlaces(own{
	{"a detached lock outlives its client, with its token, and is taken up by another", outlived},
	{"of many that take up a detached lock one has it", takenUpOnce},
	{"what is not held whole, once and for as long as its client lives is not detached", notDetached},
	{"nobody takes up what is not detached", notTakenUp},
	{"a lock whose taking up was not answered is detached again, and one whose detaching was not is given back",
		movedWithoutAnswer},
	{"a session for a detached lock whose opening was not answered is ended, and another one opened",
		openedWithoutAnswer},
	{"a lock that was taken up stays so while the client undoes an earlier call that took it up", takenUpBesideUndo},
}, moving{
	{"a detached lock goes to the next when its time is over, and cannot be taken up any more", detachedForLong},
	{"the time of a detached lock begins once nothing is in the way of detaching it", detachedLate},
})

var detachingGuarded = inPlaces(own{
	{"a lock is detached once the transactions that it guards have ended", detachedBehindGuards},
	{"a lock that was taken up guards transactions, and those that began before are to be run again",
		guardedAfterResume},
})

// detach detaches a lock.
func detach(t testing.TB, l *dblock.Lock, d time.Duration) {
	t.Helper()
	require.NoError(t, l.Detach(context.Background(), d))
	if cause := context.Cause(l.Context()); !errors.Is(cause, dblock.ErrNotHeld) || errors.Is(cause, dblock.ErrLost) {
		t.Errorf("its context ends with %v", cause)
	}
	is(t, l.Unlock(context.Background()))
}

func resume(t testing.TB, c Client, name string, token int64) *dblock.Lock {
	t.Helper()
	l, err := c.Resume(context.Background(), name, token)
	require.NoError(t, err)
	assert.Equal(t, l.Token(), token, "token")
	return l
}

func outlived(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "edited")
	detach(t, first, time.Hour)
	is(t, first.Detach(context.Background(), time.Hour), dblock.ErrNotHeld)
	assert.NoError(t, a.Close(context.Background()))
	assert.ErrorIs(t, assert.ErrOf(b.TryLock(context.Background(), "edited")), dblock.ErrNotAcquired, "it is free")
	next := e.waiter(t, b, "edited")
	for range 3 { // and on, and on
		detach(t, resume(t, b, "edited", first.Token()), time.Hour)
	}
	again := resume(t, e.client(t), "edited", first.Token())
	live(t, again)
	unlock(t, again)
	l := granted(t, soon, next)
	rising(t, first.Token(), l.Token())
	unlock(t, l)
	e.free(t, "edited")
}

func takenUpOnce(t *testing.T, e *env) {
	a := e.client(t)
	clients := []Client{a, e.client(t), a, e.client(t), a, a}
	for range 5 {
		first := lock(t, a, "edited")
		detach(t, first, time.Hour)
		locks := make(chan *dblock.Lock, len(clients))
		var refused atomic.Int64
		for _, c := range clients {
			go func() {
				l, err := c.Resume(context.Background(), "edited", first.Token())
				if err != nil && !errors.Is(err, dblock.ErrNotHeld) {
					t.Error(err)
				}
				if err != nil {
					refused.Add(1)
				}
				locks <- l
			}()
		}
		held := 0
		for range clients {
			if l := within(t, patience, "every call returns", locks); l != nil {
				held++
				live(t, l)
				unlock(t, l)
			}
		}
		if held != 1 || refused.Load() != int64(len(clients)-1) {
			t.Fatalf("%d have it: want 1", held)
		}
	}
}

func notDetached(t *testing.T, e *env) {
	c := e.client(t)
	ctx := context.Background()
	for what, options := range map[string][]dblock.LockOption{
		"shared": {dblock.Shared()}, "permits": {dblock.Permits(2, 3)}, "with a lease": {dblock.Lease(time.Hour)},
	} {
		l := lock(t, c, what, options...)
		is(t, l.Detach(ctx, time.Hour), dblock.ErrUnsupported)
		live(t, l)
		unlock(t, l)
	}
	l := lock(t, c, "n")
	is(t, l.Detach(ctx, time.Second-1), dblock.ErrInvalidOption)
	again, err := c.Lock(l.Context(), "n")
	require.NoError(t, err)
	is(t, l.Detach(ctx, time.Hour), dblock.ErrUnsupported)
	unlock(t, again)
	live(t, l)
	e.end(t, e.session(t, "n"))
	is(t, l.Detach(ctx, time.Hour), dblock.ErrLost)
	is(t, l.Unlock(ctx), dblock.ErrLost)
}

func notTakenUp(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	refuse := func(what string, token int64) {
		t.Helper()
		assert.ErrorIs(t, assert.ErrOf(b.Resume(context.Background(), "n", token)), dblock.ErrNotHeld, what)
	}
	refuse("one that lives", l.Token())
	detach(t, l, time.Hour)
	refuse("another token", l.Token()+1)
	unlock(t, resume(t, b, "n", l.Token()))
	refuse("one that was unlocked", l.Token())
	shared := lock(t, a, "n", dblock.Shared())
	refuse("a share", shared.Token())
	unlock(t, shared)
}

func detachedForLong(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	first := lock(t, a, "n")
	detach(t, first, 2*longTTL)
	next := locking(t.Context(), b, "n")
	e.advance(t, longTTL)
	stillWaits(t, 0, next)
	e.advance(t, longTTL+time.Second)
	l := granted(t, soon, next)
	rising(t, first.Token(), l.Token())
	assert.ErrorIs(t, assert.ErrOf(a.Resume(context.Background(), "n", first.Token())), dblock.ErrNotHeld,
		"taken up late")
	unlock(t, l)
	second := lock(t, a, "m")
	detach(t, second, longTTL)
	e.advance(t, longTTL+time.Second)
	assert.ErrorIs(t, assert.ErrOf(a.Resume(context.Background(), "m", second.Token())), dblock.ErrNotHeld,
		"taken up when its time was over")
}

// Broken by a time that counts from the first try.
func detachedLate(t *testing.T, e *env) {
	a := e.app(t, 5)
	u := &unheardOf{}
	a.hook(u.hook)
	l := lock(t, e.clientOf(t, a, dblock.WithoutReaper()), "n")
	u.busy.Store(true)
	done := async(func() error { return l.Detach(context.Background(), longTTL) })
	eventually(t, soon, "it has tried", func() bool { return u.changed.Load() > 0 })
	e.advance(t, longTTL*3/4)
	// A try that had its time before is refused, too: the next one has its time from here on.
	tried := u.changed.Load()
	eventually(t, soon, "it has tried again", func() bool { return u.changed.Load() > tried })
	u.busy.Store(false)
	is(t, within(t, soon, "Detach returns", done), nil)
	e.advance(t, longTTL*3/4)
	unlock(t, resume(t, e.client(t, dblock.WithoutReaper()), "n", l.Token()))
}

// unheardOf is a database. While deaf is set, the answers to its changes are lost, or with unsent
// the changes themselves; while busy is, they are refused.
type unheardOf struct {
	deaf            atomic.Pointer[func()] // called with each lost answer
	unsent, busy    atomic.Bool
	changed, opened atomic.Int64
}

func (u *unheardOf) hook(ctx context.Context, c *fakedb.Call) (err error) {
	switch {
	case c.Method == "OpenSession":
		err = c.Do(ctx)
		u.opened.Add(1)
		return err
	case !c.Moves():
		return c.Do(ctx)
	case u.busy.Load():
		u.changed.Add(1)
		return driver.ErrBusy
	}
	lost := u.deaf.Load()
	if lost == nil || !u.unsent.Load() {
		err = c.Do(ctx)
	}
	u.changed.Add(1)
	if lost != nil {
		(*lost)()
		return fakedb.ErrLost
	}
	return err
}

func movedWithoutAnswer(t *testing.T, e *env) {
	a := e.app(t, 5)
	u := &unheardOf{}
	a.hook(u.hook)
	c, other := e.clientOf(t, a), e.client(t)
	during := func(call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		lost := func() { cancel() }
		u.deaf.Store(&lost)
		if err := call(ctx); err == nil || errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("without an answer: %v", err)
		}
		u.deaf.Store(nil)
	}
	first := lock(t, other, "n")
	detach(t, first, time.Hour)
	during(func(ctx context.Context) error {
		_, err := c.Resume(ctx, "n", first.Token())
		return err
	})
	var again *dblock.Lock
	eventually(t, soon, "it can be taken up", func() bool {
		l, err := other.Resume(context.Background(), "n", first.Token())
		again = l
		return err == nil
	})
	live(t, again)
	unlock(t, again)

	// it is the new session's, or still this one's: the client does not know
	for _, unsent := range []bool{false, true} {
		held := lock(t, c, "n")
		u.unsent.Store(unsent)
		during(func(ctx context.Context) error { return held.Detach(ctx, time.Hour) })
		next := granted(t, soon, locking(t.Context(), other, "n"))
		rising(t, held.Token(), next.Token())
		unlock(t, next)
	}
}

// Broken by a second try with the same id, which the first one has left: 1062, 23505.
func openedWithoutAnswer(t *testing.T, e *env) {
	a := e.app(t, 5)
	var opened []string
	a.hook(func(ctx context.Context, c *fakedb.Call) error {
		err := c.Do(ctx)
		if c.Method != "OpenSession" || !strings.HasPrefix(c.Session, "detached") {
			return err
		}
		if opened = append(opened, c.Session); len(opened) == 1 {
			return fakedb.ErrLost
		}
		return err
	})
	first := lock(t, e.clientOf(t, a), "n")
	detach(t, first, time.Hour)
	assert.Equal(t, len(opened), 2, "sessions were opened")
	assert.Equal(t, e.session(t, "n"), opened[1], "the lock's session")
	eventually(t, soon, "the first session is gone", func() bool {
		return e.number(t, "SELECT count(*) FROM dblock_sessions WHERE id = ?", opened[0]) == 0
	})
	unlock(t, resume(t, e.client(t), "n", first.Token()))
}

// Broken by an undoing that finds the lock by its token, which is the same in each session.
func takenUpBesideUndo(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(t.Context())
	undoing, undo, undone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	a := e.app(t, 5)
	a.hook(func(of context.Context, c *fakedb.Call) error {
		move, moves := c.Op().(protocol.Move)
		switch {
		case !moves:
		case ctx.Err() == nil: // of the first Resume
			cancel()
			return fakedb.ErrLost
		case strings.HasPrefix(move.To.Session, "detached"):
			close(undoing)
			<-undo
			defer close(undone)
		}
		return c.Do(of)
	})
	c, other := e.clientOf(t, a), e.client(t)
	first := lock(t, other, "n")
	detach(t, first, time.Hour)
	if _, err := c.Resume(ctx, "n", first.Token()); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	within(t, soon, "it is undone", undoing)
	l := resume(t, c, "n", first.Token())
	close(undo)
	within(t, soon, "that has an answer", undone)
	if _, err := other.Resume(t.Context(), "n", first.Token()); !errors.Is(err, dblock.ErrNotHeld) {
		t.Errorf("of what the client has: %v", err)
	}
	live(t, l)
	unlock(t, l)
}

func detachedBehindGuards(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 5)
	u := &unheardOf{}
	a.hook(u.hook)
	c := e.clientOf(t, a)
	l := lock(t, c, "n")
	tx := beginTx(t, a, sql.LevelDefault)
	require.NoError(t, c.Guard(t.Context(), tx, l))
	done := make(chan error, 1)
	tried, before := &u.changed, u.changed.Load()
	if e.wiring.Kind == SQLite { // where the transaction has locked the whole database
		tried, before = &u.opened, u.opened.Load()
	}
	go func() { done <- l.Detach(context.Background(), time.Hour) }()
	eventually(t, soon, "it has tried twice", func() bool {
		stillWaits(t, 0, done)
		return tried.Load() > before+1
	})
	e.commitOne(t, tx)
	require.NoError(t, within(t, patience, "Detach returns", done))
	unlock(t, resume(t, e.client(t), "n", l.Token()))
}

func guardedAfterResume(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, before := range []bool{false, true} {
			name := fmt.Sprint(name, before)
			first := lock(t, c, name)
			if before { // it has a guard
				tx := beginTx(t, a, level)
				require.NoError(t, c.Guard(t.Context(), tx, first))
				commit(t, tx)
			}
			detach(t, first, time.Hour)
			var old Tx
			if e.wiring.Kind != SQLite { // where nobody else could write meanwhile
				old = beginTx(t, a, level)
				snapshot(t, old)
			}
			l := resume(t, c, name, first.Token())
			if old != nil {
				if err := c.Guard(t.Context(), old, l); errors.Is(err, dblock.ErrLost) {
					t.Fatalf("in a transaction from before: %v", err)
				}
				_ = old.rollback()
			}
			live(t, l)
			tx := beginTx(t, a, level)
			require.NoError(t, c.Guard(t.Context(), tx, l))
			e.commitOne(t, tx)
			unlock(t, l)
		}
	})
}
