package suite

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var extending = inPlaces(moving{
	{"Extend moves the end of a lock with a Lease, and never back, and then the next waiter has it", extendedEnds},
}, own{
	{"Extend of a lock whose lease is over is ErrLost and changes nothing, and after Unlock ErrNotHeld", extendOver},
	{"Extend is for locks with a Lease", extendUnleased},
	{"Extend does not wait for a transaction that guards the lock", extendGuarded},
})

// leasedKinds are locks with a Lease, by the table that has them.
var leasedKinds = map[string][]dblock.LockOption{
	"dblock_locks":  nil,
	"dblock_shares": {dblock.Shared()},
}

func extendedEnds(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	for table, options := range leasedKinds {
		l := lock(t, a, "n", append(options, dblock.Lease(20*time.Second))...)
		waiter := e.waiter(t, b, "n")
		var ends int64
		for _, by := range []time.Duration{3 * time.Minute, 10 * time.Second} { // never back
			before := e.now(t)
			require.NoError(t, l.Extend(t.Context(), by))
			end := e.number(t, "SELECT expires_at FROM "+table+" WHERE name = 'n'")
			if want := before + by.Microseconds(); ends == 0 && end < want-1000 || ends > 0 && end != ends {
				t.Errorf("%s: it ends at %d, and did at %d: extended at %d by %v", table, end, ends, before, by)
			}
			ends = end
		}
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
		rising(t, l.Token(), next.Token())
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
	app, c := e.appClient(t, 5)
	for _, options := range leasedKinds {
		l := lock(t, c, "n", append(options, dblock.Lease(time.Minute))...)
		tx := beginTx(t, app, e.levels()[0])
		require.NoError(t, c.Guard(t.Context(), tx, l))
		assert.NoError(t, l.Extend(t.Context(), time.Hour))
		commit(t, tx)
		unlock(t, l)
	}
}
