package suite

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var afterUnlockTx = inPlaces(own{
	{"after UnlockTx and its commit the same owner waits for the lock like anybody else", ownerAfterUnlockTx},
	{"after UnlockTx a lock is neither converted nor extended nor detached nor written about", usedAfterUnlockTx},
	{"after UnlockTx another UnlockTx and Guard say that the lock was given up, not that it was lost",
		goneAfterUnlockTx},
	{"while Unlock waits for the transaction of UnlockTx, no other call waits for Unlock", usedBesideUnlock},
	{"Unlock of Locks beside an Unlock that waits ends with its context, and releases the others", allBesideUnlock},
	{"after UnlockTx and a rollback Guard brings the lock back to its owner", guardedAfterRollback},
	{"an owner that waits for its own lock after UnlockTx and a rollback waits until its context ends",
		waitsAfterRollback},
}, moving{
	{"nobody watches the progress of a lock after UnlockTx, until Guard has shown a rollback", progressAfterUnlockTx},
})

// unlockTx calls UnlockTx of a lock in a transaction that it leaves open.
func (e *env) unlockTx(t testing.TB, a App, c Client, l *dblock.Lock) Tx {
	t.Helper()
	tx := beginTx(t, a, e.levels()[0])
	is(t, c.UnlockTx(t.Context(), tx, l), nil)
	return tx
}

// handOn hands a name on that UnlockTx has left free with its queue, as a client does that notices.
func handOn(t testing.TB, a App, name string) {
	t.Helper()
	if _, _, err := drivertest.TakeOver(t.Context(), a.Backend, "", name, protocol.Holder{}); err != nil {
		t.Fatal(err)
	}
}

// Broken by a hold that its owner still finds in memory.
func ownerAfterUnlockTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	owner := dblock.Owner("pod", "1")
	for how, again := range map[string]struct {
		options []dblock.LockOption
		under   bool
	}{
		"under its context": {nil, true},
		"the same Owner":    {[]dblock.LockOption{owner}, false},
		"a reader":          {[]dblock.LockOption{owner, dblock.Shared()}, false},
	} {
		t.Run(how, func(t *testing.T) {
			l := lock(t, c, how, again.options...)
			ctx := t.Context()
			if again.under {
				ctx = l.Context()
			}
			waiter := e.waiter(t, other, how)
			commit(t, e.unlockTx(t, a, c, l))
			handOn(t, a, how)
			next := granted(t, soon, waiter)
			if nested, err := c.TryLock(ctx, how, again.options...); !errors.Is(err, dblock.ErrNotAcquired) {
				t.Fatalf("entered again beside the next holder, with token %d after %d: %v", nested.Token(), l.Token(),
					err)
			}
			nested := locking(ctx, c, how, again.options...)
			e.queued(t, how, 1)
			live(t, next)
			unlock(t, next)
			last := granted(t, soon, nested)
			rising(t, l.Token(), next.Token(), last.Token())
			unlock(t, l) // of the hold before: the new one stays
			live(t, last)
			refused(t, other, how)
			unlock(t, last)
			e.idle(t, how)

			// Nobody else wants it.
			l = lock(t, c, how, again.options...)
			if again.under {
				ctx = l.Context()
			}
			commit(t, e.unlockTx(t, a, c, l))
			last = granted(t, soon, locking(ctx, c, how, again.options...))
			rising(t, l.Token(), last.Token())
			refused(t, other, how)
			unlock(t, l)
			live(t, last)
			unlock(t, last)
			e.idle(t, how)
		})
	}
}

// use is a call that needs a lock on which the client relies.
type use struct {
	options []dblock.LockOption
	call    func(ctx context.Context, l *dblock.Lock) error
}

var uses = map[string]use{
	"Downgrade": {nil, func(ctx context.Context, l *dblock.Lock) error { return l.Downgrade(ctx) }},
	"TryUpgrade": {[]dblock.LockOption{dblock.Shared()},
		func(ctx context.Context, l *dblock.Lock) error { return l.TryUpgrade(ctx) }},
	"Raise": {nil, func(ctx context.Context, l *dblock.Lock) error {
		_, err := raiseToken(ctx, l, l.Token()+1)
		return err
	}},
	"Extend": {[]dblock.LockOption{dblock.Lease(time.Hour)}, func(ctx context.Context, l *dblock.Lock) error {
		return l.Extend(ctx, 2*time.Hour)
	}},
	"Record": {nil, func(ctx context.Context, l *dblock.Lock) error { return l.Record(ctx, "test", "") }},
	"Detach": {nil, func(ctx context.Context, l *dblock.Lock) error { return l.Detach(ctx, time.Hour) }},
}

// givenUp checks the error of a call for a lock that its holder has given up.
func givenUp(t testing.TB, err error) {
	t.Helper()
	if is(t, err, dblock.ErrNotHeld); errors.Is(err, dblock.ErrLost) {
		t.Errorf("%v: it was not lost", err)
	}
}

// Broken by an absence after UnlockTx that is taken for a loss.
func goneAfterUnlockTx(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	l := lock(t, c, "n")
	tx := e.unlockTx(t, a, c, l)
	givenUp(t, c.UnlockTx(brief(t), tx, l))
	givenUp(t, c.Guard(brief(t), tx, l))
	commit(t, tx)
	for _, call := range []func(context.Context, Tx, ...*dblock.Lock) error{c.Guard, c.UnlockTx} {
		tx = beginTx(t, a, e.levels()[0])
		givenUp(t, call(brief(t), tx, l))
		rollback(t, tx)
	}
	live(t, l)
	unlock(t, l)
	e.free(t, "n")
}

// Broken by a mutex that Unlock has while it waits for the transaction: what the transaction's own
// goroutine calls would wait for it, and neither would end.
func usedBesideUnlock(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	all := maps.Clone(uses)
	var tx Tx
	all["UnlockTx"] = use{nil, func(ctx context.Context, l *dblock.Lock) error { return c.UnlockTx(ctx, tx, l) }}
	all["Guard"] = use{nil, func(ctx context.Context, l *dblock.Lock) error { return c.Guard(ctx, tx, l) }}
	for what, of := range all {
		t.Run(what, func(t *testing.T) {
			l := lock(t, c, what, of.options...)
			tx = e.unlockTx(t, a, c, l)
			unlocked := unlocking(l)
			ended(t, patience, l, dblock.ErrNotHeld)
			ctx := brief(t)
			givenUp(t, of.call(ctx, l))
			if ctx.Err() != nil {
				t.Error("it has waited for Unlock")
			}
			commit(t, tx)
			is(t, within(t, patience, "Unlock ends with the transaction", unlocked), nil)
			e.free(t, what)
		})
	}
}

// Broken likewise, and by an Unlock that keeps the other locks.
func allBesideUnlock(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	all, err := c.LockAll(t.Context(), []string{"m", "n"})
	require.NoError(t, err)
	tx := e.unlockTx(t, a, c, all.All()[0])
	one, both := make(chan error, 1), make(chan error, 1)
	go func() { one <- all.All()[0].Unlock(context.Background()) }()
	ended(t, patience, all.All()[0], dblock.ErrNotHeld)
	ctx := limited(t, 300*time.Millisecond)
	go func() { both <- all.Unlock(ctx) }()
	assert.Error(t, within(t, soon, "Unlock of Locks ends with its context", both), "unlocked beside the transaction")
	if e.wiring.Kind != SQLite { // where the transaction has locked everything
		e.free(t, "n")
	}
	commit(t, tx)
	is(t, within(t, patience, "Unlock ends with the transaction", one), nil)
	is(t, all.Unlock(brief(t)), nil)
	e.free(t, "m")
	e.free(t, "n")
}

// Broken by a step that is sent without a look at the state: it waits for the transaction, or takes
// the commit for a loss.
func usedAfterUnlockTx(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	for what, of := range uses {
		t.Run(what, func(t *testing.T) {
			l := lock(t, c, what, of.options...)
			refused := func() {
				t.Helper()
				givenUp(t, of.call(brief(t), l))
				live(t, l)
			}
			tx := e.unlockTx(t, a, c, l)
			refused()
			rollback(t, tx)
			refused()
			tx = beginTx(t, a, e.levels()[0])
			is(t, c.Guard(brief(t), tx, l), nil)
			rollback(t, tx)
			is(t, of.call(brief(t), l), nil)
			if what == "Detach" {
				l = resume(t, c, what, l.Token())
			}
			commit(t, e.unlockTx(t, a, c, l))
			refused()
			unlock(t, l)
			is(t, of.call(brief(t), l), dblock.ErrNotHeld)
			e.idle(t, what)
		})
	}
}

// Broken by an UnlockTx whose failure counts, and by a Guard that does not.
func guardedAfterRollback(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	l := lock(t, c, "n")
	enters := func() {
		t.Helper()
		again, err := c.TryLock(l.Context(), "n")
		is(t, err, nil)
		assert.Equal(t, again.Token(), l.Token(), "token")
		unlock(t, again)
		live(t, l)
	}
	enters()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tx := beginTx(t, a, e.levels()[0])
	is(t, c.UnlockTx(ctx, tx, l), context.Canceled)
	rollback(t, tx)
	tx = beginTx(t, a, e.levels()[0])
	rollback(t, tx)
	is(t, c.UnlockTx(t.Context(), tx, l), dblock.ErrTxDone)
	enters() // neither was sent
	for range 2 {
		rollback(t, e.unlockTx(t, a, c, l)) // and once more without a Guard
		rollback(t, e.unlockTx(t, a, c, l))
		require.ErrorIs(t, require.ErrOf(c.TryLock(l.Context(), "n")), dblock.ErrNotAcquired,
			"entered again before a Guard")
		tx = beginTx(t, a, e.levels()[0])
		is(t, c.Guard(t.Context(), tx, l), nil)
		commit(t, tx)
		enters()
	}
	unlock(t, l)
	e.idle(t, "n")
}

// Broken by a place in the queue that stays.
func waitsAfterRollback(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	for how, options := range map[string][]dblock.LockOption{"context": nil, "Owner": {dblock.Owner("pod", "1")}} {
		l := lock(t, c, how, options...)
		rollback(t, e.unlockTx(t, a, c, l))
		ctx, cancel := context.WithCancel(l.Context())
		waiter := locking(ctx, c, how, options...)
		e.queued(t, how, 1)
		cancel()
		is(t, within(t, soon, "its context ends the wait", waiter).err, dblock.ErrNotAcquired, context.Canceled)
		live(t, l)
		unlock(t, l)
		e.free(t, how)
	}
}

// Broken by a watch that goes on, or never again.
func progressAfterUnlockTx(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	const every = 5 * time.Second // longer than the test takes
	for _, end := range []func(testing.TB, Tx){rollback, commit} {
		l := lock(t, c, "n", dblock.Progress(every))
		tx := e.unlockTx(t, a, c, l)
		if e.wiring.Kind != SQLite { // whose heartbeats wait for the transaction
			e.advance(t, every+time.Second)
			live(t, l)
		}
		end(t, tx)
		e.advance(t, every+time.Second)
		live(t, l)
		tx = beginTx(t, a, e.levels()[0])
		err := c.Guard(t.Context(), tx, l)
		rollback(t, tx)
		if err != nil {
			is(t, err, dblock.ErrNotHeld) // it was committed
			e.advance(t, every+time.Second)
			live(t, l)
			unlock(t, l)
			ended(t, soon, l, dblock.ErrNotHeld)
			continue
		}
		live(t, l)
		e.advance(t, 2*every)
		ended(t, soon, l, dblock.ErrStalled)
		is(t, l.Unlock(t.Context()), dblock.ErrStalled)
		e.free(t, "n")
	}
}
