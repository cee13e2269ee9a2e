package suite

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var extending = inPlaces(moving{
	{"Extend moves the end of a lock with a Lease, and never back", extendLease},
	{"a lock that was extended ends then, and the next waiter has it", extendedEnds},
}, own{
	{"Extend of a lock whose lease is over, or that was taken away, is ErrLost and changes nothing", extendOver},
	{"Extend is for locks with a Lease", extendUnleased},
	{"Extend does not wait for a transaction that guards the lock", extendGuarded},
})

// leasedKinds are locks with a Lease, by the table that has them.
var leasedKinds = map[string][]dblock.LockOption{
	"dblock_locks":  nil,
	"dblock_shares": {dblock.Shared()},
}

func extendLease(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	for table, options := range leasedKinds {
		const lease = 20 * time.Second
		ends := func() int64 { return e.number(t, "SELECT expires_at FROM "+table+" WHERE name = 'n'") }
		l := lock(t, c, "n", append(options, dblock.Lease(lease))...)
		first, token := ends(), l.Token()
		if err := l.Extend(t.Context(), lease/2); err != nil || ends() != first {
			t.Errorf("%s: it ended at %d, and does at %d: %v", table, first, ends(), err)
		}
		before := e.now(t)
		require.NoError(t, l.Extend(t.Context(), time.Hour))
		if after := e.now(t); ends() < before+time.Hour.Microseconds()-1000 || ends() > after+time.Hour.Microseconds()+
			1000 {
			t.Errorf("%s: it ends at %d, extended by an hour between %d and %d", table, ends(), before, after)
		}
		later := ends()
		if err := l.Extend(t.Context(), lease); err != nil || ends() != later {
			t.Errorf("%s: it was shortened from %d to %d: %v", table, later, ends(), err)
		}
		e.advance(t, lease+time.Second) // the first end has passed
		if e.now(t) <= first {
			t.Errorf("%s: it is %d, before %d", table, e.now(t), first)
		}
		live(t, l)
		refused(t, other, "n")
		if l.Token() != token {
			t.Errorf("token %d became %d", token, l.Token())
		}
		unlock(t, l)
		e.free(t, "n")
	}
}

func extendedEnds(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	for table, options := range leasedKinds {
		l := lock(t, a, "n", append(options, dblock.Lease(20*time.Second))...)
		waiter := locking(context.Background(), b, "n")
		e.queued(t, "n", 1)
		require.NoError(t, l.Extend(t.Context(), 3*time.Minute))
		ends := e.number(t, "SELECT expires_at FROM "+table+" WHERE name = 'n'")
		if left := time.Until(l.Until()); left > 3*time.Minute {
			t.Errorf("%s: it has %v left", table, left)
		}
		e.advance(t, 2*time.Minute)
		live(t, l)
		e.queued(t, "n", 1)
		e.advance(t, time.Minute)
		next := granted(t, soon, waiter)
		if now := e.now(t); now < ends {
			t.Errorf("%s: granted at %d, before the end at %d", table, now, ends)
		}
		over(t, l)
		is(t, l.Extend(t.Context(), time.Minute), dblock.ErrLost)
		unlock(t, next)
		e.free(t, "n")
	}
}

func extendOver(t *testing.T, e *env) {
	c := e.client(t)
	for table, options := range leasedKinds {
		// By the database's clock it is over, and nobody has taken it.
		l := lock(t, c, "over", append(options, dblock.Lease(time.Minute))...)
		past := e.now(t) - 1000
		e.exec(t, "UPDATE "+table+" SET expires_at = ? WHERE name = 'over'", past)
		is(t, l.Extend(t.Context(), time.Hour), dblock.ErrLost)
		ended(t, soon, l, dblock.ErrLost)
		if end := e.number(t, "SELECT coalesce(max(expires_at), 0) FROM "+table+" WHERE name = 'over'"); end > past {
			t.Errorf("%s: it ends at %d, after the end at %d", table, end, past)
		}
	}

	// A later grant of the same session has it.
	first := lock(t, c, "taken", dblock.Lease(time.Minute))
	e.exec(t, "UPDATE dblock_locks SET token = token + 10 WHERE name = 'taken'")
	e.exec(t, "UPDATE dblock_locks SET first_token = token, last_token = token WHERE name = 'taken'")
	end := e.number(t, "SELECT expires_at FROM dblock_locks WHERE name = 'taken'")
	is(t, first.Extend(t.Context(), time.Hour), dblock.ErrLost)
	ended(t, soon, first, dblock.ErrLost)
	if now := e.number(t, "SELECT expires_at FROM dblock_locks WHERE name = 'taken'"); now != end {
		t.Errorf("the lock of another was extended from %d to %d", end, now)
	}

	l := lock(t, c, "unlocked", dblock.Lease(time.Minute))
	unlock(t, l)
	is(t, l.Extend(t.Context(), time.Hour), dblock.ErrNotHeld)
}

func extendUnleased(t *testing.T, e *env) {
	c := e.client(t)
	l := lock(t, c, "n")
	is(t, l.Extend(t.Context(), time.Hour), dblock.ErrInvalidOption)
	live(t, l)
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = 'n' AND expires_at IS NULL"), 1,
		"it has an end")
	unlock(t, l)
	l = lock(t, c, "n", dblock.Lease(time.Minute))
	for _, short := range []time.Duration{-time.Second, 0, 99 * time.Millisecond} {
		is(t, l.Extend(t.Context(), short), dblock.ErrInvalidOption)
	}
	again, err := c.Lock(l.Context(), "n")
	is(t, err, nil)
	assert.NoError(t, again.Extend(t.Context(), time.Hour))
	unlock(t, again)
	unlock(t, l)
}

func extendGuarded(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		return // the transaction has locked the database
	}
	app := e.app(t, 5)
	c := e.clientOf(t, app)
	for _, options := range leasedKinds {
		l := lock(t, c, "n", append(options, dblock.Lease(time.Minute))...)
		tx := beginTx(t, app, e.levels()[0])
		require.NoError(t, c.Guard(t.Context(), tx, l))
		assert.NoError(t, l.Extend(t.Context(), time.Hour))
		commit(t, tx)
		unlock(t, l)
	}
}
