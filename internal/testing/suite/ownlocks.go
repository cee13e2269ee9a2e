package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// OwnLocks is a client of a server's own locks.
type OwnLocks interface {
	dblock.Locker
	Close(ctx context.Context) error
}

// OwnWiring is one way to open clients of a server's own locks.
type OwnWiring struct {
	Name, Kind string
	// Open opens a client on a pool of its own, which closing closes after it.
	Open   func(t testing.TB, db dbtest.Database) (client OwnLocks, closing func(), err error)
	Shares bool // the server has shared locks
}

// owning is what one test of a server's own locks works with. The server may have them in common
// with other databases, so that each test has a name of its own.
type owning struct {
	*env
	OwnWiring
	name string
}

// RunOwn runs the suite of a server's own locks.
func RunOwn(t *testing.T, w OwnWiring) {
	tests := map[string]func(t *testing.T, o owning){
		"when its clients are closed nothing runs":                                           ownNothingIsLeft,
		"at most one goroutine of several clients holds a lock":                              ownExclusion,
		"TryLock and a context that ends are ErrNotAcquired, and leave nothing":              ownRefused,
		"under its own context the same name locks again at once and is counted":             ownReentrant,
		"goroutines under one context enter what the first of them gets":                     ownTogether,
		"Unlock twice says what it said the first time, and a stale handle unlocks nothing":  ownUnlock,
		"an Unlock under the lock's own context, or one that has ended, gives the lock back": ownUnlockLate,
		"Do unlocks after a panic, and ends its function's context with the lock":            ownDo,
		"Close ends held locks and calls off its waiters":                                    ownClose,
		"a lost connection ends the contexts of all its locks, and the next lock works":      ownLost,
		"bad input is refused": ownInput,
	}
	if w.Shares {
		tests["shared locks go together, and exclude an exclusive one"] = ownShared
	}
	for says, run := range tests {
		t.Run(w.Name+"/"+says, func(t *testing.T) {
			run(t, owning{emptyEnv(t, Wiring{Name: w.Name, Kind: w.Kind}), w, "own/" + rand.Text()})
		})
	}
}

// open makes a client, which is closed when the test has ended.
func (o owning) open(t *testing.T) OwnLocks {
	t.Helper()
	c, closing, err := o.Open(t, o.db)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close(context.Background()))
		closing()
	})
	return c
}

func take(t testing.TB, c dblock.Locker, name string, options ...dblock.LockOption) dblock.Handle {
	t.Helper()
	l, err := c.Lock(brief(t), name, options...)
	require.NoError(t, err)
	return l
}

func giveBack(t testing.TB, l dblock.Handle) {
	t.Helper()
	require.NoError(t, l.Unlock(context.Background()))
}

// othersHave checks that TryLock finds a name taken.
func othersHave(t testing.TB, c dblock.Locker, name string, options ...dblock.LockOption) {
	t.Helper()
	l, err := c.TryLock(context.Background(), name, options...)
	if is(t, err, dblock.ErrNotAcquired); l != nil {
		t.Fatalf("a handle beside an error: %v", l)
	}
}

// ownWaiting calls Lock in the background, and returns when it has waited for a moment.
func ownWaiting(ctx context.Context, t testing.TB, c dblock.Locker, name string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		l, err := c.Lock(ctx, name)
		if err == nil {
			err = l.Unlock(context.WithoutCancel(ctx))
		}
		done <- err
	}()
	stillWaits(t, 50*time.Millisecond, done)
	return done
}

func ownNothingIsLeft(t *testing.T, o owning) {
	before := leak.Running()
	c, closing, err := o.Open(t, o.db)
	is(t, err, nil)
	other, closingOther, err := o.Open(t, o.db)
	is(t, err, nil)
	l := take(t, c, o.name)
	ctx := limited(t, 50*time.Millisecond)
	_, err = other.Lock(ctx, o.name)
	calledOff(t, err, context.DeadlineExceeded)
	giveBack(t, l)
	take(t, c, o.name+" left to Close")
	for _, c := range []OwnLocks{c, other, c} {
		require.NoError(t, c.Close(brief(t)))
	}
	closing()
	closingOther()
	assert.NoError(t, leak.Find(before))
}

func ownExclusion(t *testing.T, o owning) {
	var inside, entered atomic.Int32
	var all sync.WaitGroup
	for range 3 {
		c := o.open(t)
		for range 4 {
			all.Go(func() {
				for range 5 {
					if err := c.Do(brief(t), o.name, func(context.Context, dblock.Handle) error {
						assert.Equal(t, inside.Add(1), 1, "inside")
						entered.Add(1)
						inside.Add(-1)
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	assert.Equal(t, entered.Load(), 60, "of 60")
}

func ownRefused(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	l := take(t, a, o.name)
	for _, c := range []OwnLocks{a, b} {
		othersHave(t, c, o.name)
		_, err := c.Lock(t.Context(), o.name, dblock.WaitAtMost(50*time.Millisecond))
		if is(t, err, context.DeadlineExceeded); !errors.Is(err, dblock.ErrNotAcquired) &&
			!errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("%v after WaitAtMost", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := ownWaiting(ctx, t, c, o.name)
		cancel()
		is(t, within(t, soon, "the waiter gives up", waiting), dblock.ErrNotAcquired, context.Canceled)
		_, err = c.TryLock(ctx, o.name)
		if is(t, err, context.Canceled); errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("%v of a context that had ended", err)
		}
	}
	giveBack(t, l)
	giveBack(t, take(t, b, o.name))
}

func ownReentrant(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	l := take(t, a, o.name)
	other := take(t, a, o.name+"/2")
	again, err := a.TryLock(l.Context(), o.name)
	if err != nil || again.Context() != l.Context() || again.Name() != o.name || again.Token() != 0 {
		t.Fatalf("%v, %v", again, err)
	}
	othersHave(t, a, o.name) // another owner
	_, err = b.TryLock(l.Context(), o.name)
	is(t, err, dblock.ErrNotAcquired) // another client
	below := take(t, a, o.name+"/3")
	giveBack(t, again)
	giveBack(t, again)
	live(t, l)
	othersHave(t, b, o.name)
	giveBack(t, l)
	giveBack(t, take(t, b, o.name))
	giveBack(t, below)
	giveBack(t, other)
	ended(t, soon, l, dblock.ErrNotHeld)
	late, err := a.TryLock(l.Context(), o.name) // its context has ended
	if is(t, err, dblock.ErrNotHeld); late != nil {
		t.Errorf("%v", late)
	}
}

func ownTogether(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	outer := take(t, a, o.name+"/outer")
	l := take(t, b, o.name)
	locks := make(chan dblock.Handle, 3)
	for range cap(locks) {
		go func() {
			l, err := a.Lock(outer.Context(), o.name)
			assert.NoError(t, err)
			locks <- l
		}()
	}
	giveBack(t, l)
	for range cap(locks) {
		l := within(t, soon, "all have it", locks)
		othersHave(t, b, o.name)
		defer giveBack(t, l)
	}
}

func ownUnlock(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	l := take(t, a, o.name)
	giveBack(t, l)
	ended(t, soon, l, dblock.ErrNotHeld)
	next := take(t, b, o.name)
	giveBack(t, l)
	othersHave(t, a, o.name)
	live(t, next)
	giveBack(t, next)
}

func ownUnlockLate(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		l := take(t, a, o.name)
		for _, ctx := range []context.Context{over, l.Context()} {
			assert.NoError(t, l.Unlock(ctx))
		}
		giveBack(t, take(t, b, o.name))
	}
}

func ownDo(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	func() {
		defer func() { _ = recover() }()
		_ = a.Do(t.Context(), o.name, func(context.Context, dblock.Handle) error { panic("on purpose") })
	}()
	giveBack(t, take(t, b, o.name))
	said := errors.New("what the function says")
	is(t, a.Do(t.Context(), o.name, func(ctx context.Context, l dblock.Handle) error {
		again, err := a.TryLock(ctx, o.name)
		require.NoError(t, err)
		giveBack(t, again)
		return said
	}), said)
	ctx, cancel := context.WithCancel(t.Context())
	is(t, a.Do(ctx, o.name, func(ctx context.Context, l dblock.Handle) error {
		cancel()
		<-ctx.Done()
		live(t, l)
		return ctx.Err()
	}), context.Canceled)
	is(t, a.Do(t.Context(), o.name, func(ctx context.Context, l dblock.Handle) error {
		o.kill(t, everything)
		within(t, soon, "the function hears of it", ctx.Done())
		is(t, context.Cause(ctx), dblock.ErrLost)
		return nil
	}), dblock.ErrLost)
}

func ownClose(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	l := take(t, a, o.name)
	waiting := ownWaiting(t.Context(), t, a, o.name)
	require.NoError(t, a.Close(brief(t)))
	ended(t, soon, l, dblock.ErrClosed)
	is(t, l.Unlock(t.Context()), dblock.ErrClosed)
	is(t, within(t, soon, "the waiter is called off", waiting), dblock.ErrClosed)
	is(t, assert.ErrOf(a.Lock(t.Context(), o.name)), dblock.ErrClosed)
	// Close has given it back. The server may keep it for the waiter's connection for a moment.
	giveBack(t, take(t, b, o.name))
}

func ownLost(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	first, second := take(t, a, o.name), take(t, a, o.name+"/2")
	o.kill(t, everything)
	for _, l := range []dblock.Handle{first, second} {
		ended(t, soon, l, dblock.ErrLost)
		for range 2 {
			is(t, l.Unlock(t.Context()), dblock.ErrLost)
		}
	}
	for _, c := range []OwnLocks{a, b} {
		giveBack(t, take(t, c, o.name))
	}
}

func ownInput(t *testing.T, o owning) {
	c := o.open(t)
	for _, name := range []string{"", "nul\x00", string(make([]byte, 256))} {
		is(t, assert.ErrOf(c.Lock(t.Context(), name)), dblock.ErrInvalidName)
	}
	unsupported := []dblock.LockOption{
		dblock.Owner("h", "t"), dblock.Lease(time.Minute), dblock.MinHold(time.Second), dblock.Permits(1, 2),
		dblock.Metadata(map[string]string{"k": "v"}),
	}
	if !o.Shares {
		unsupported = append(unsupported, dblock.Shared())
	}
	for _, option := range unsupported {
		is(t, assert.ErrOf(c.Lock(t.Context(), o.name, option)), dblock.ErrUnsupported)
	}
	for _, option := range []dblock.LockOption{{}, dblock.Lease(1)} {
		is(t, assert.ErrOf(c.TryLock(t.Context(), o.name, option)), dblock.ErrInvalidOption)
	}
	is(t, c.Do(t.Context(), o.name, nil), dblock.ErrInvalidOption)
	var none context.Context
	is(t, assert.ErrOf(c.Lock(none, o.name)), dblock.ErrInvalidOption)
	is(t, c.Close(none), dblock.ErrInvalidOption)
	l := take(t, c, o.name)
	is(t, l.Unlock(none), dblock.ErrInvalidOption)
	live(t, l)
	giveBack(t, l)
}

func ownShared(t *testing.T, o owning) {
	a, b := o.open(t), o.open(t)
	readers := []dblock.Handle{take(t, a, o.name, dblock.Shared()), take(t, a, o.name, dblock.Shared()),
		take(t, b, o.name, dblock.Shared())}
	othersHave(t, a, o.name)
	othersHave(t, b, o.name)
	_, err := a.TryLock(readers[0].Context(), o.name) // a shared lock does not become exclusive
	is(t, err, dblock.ErrDeadlock)
	again := take(t, a, o.name, dblock.Shared())
	giveBack(t, again)
	writer := ownWaiting(t.Context(), t, b, o.name)
	eventually(t, patience, "the writer holds back later readers", func() bool {
		l, err := a.TryLock(t.Context(), o.name, dblock.Shared())
		if err == nil {
			giveBack(t, l)
		}
		return errors.Is(err, dblock.ErrNotAcquired)
	})
	for _, l := range readers {
		live(t, l)
		giveBack(t, l)
	}
	assert.NoError(t, within(t, soon, "the writer is served", writer))
	w := take(t, a, o.name)
	othersHave(t, b, o.name, dblock.Shared())
	entered, err := a.Lock(w.Context(), o.name, dblock.Shared()) // the whole holds a share
	require.NoError(t, err)
	giveBack(t, entered)
	giveBack(t, w)
}
