package suite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var takingOver = inPlaces(own{
	{"a transaction in any language that has guarded a lock by SQL keeps takeovers out, and one that comes too late " +
		"is told", guardedBySQL},
	{"a guarded transaction holds up no takeover of another lock, be it of the same client, or of the same name",
		guardedBeside},
	{"a takeover that a guarded transaction refused lets no new guard of the lock begin", guardAnnounced},
	{"Guard of a lock with no row to lock says that the transaction must be run again", guardUnmade},
}, moving{
	{"takeovers come although goroutines guard transactions again and again", guardedAgain},
	{"the end of a session takes nothing that a transaction guards", guardedAfterClose},
})

// takeover is a way in which a lock can pass from a session that did not release it.
type takeover struct {
	lease  time.Duration // of the lock
	units  int           // 0: the whole name
	living bool          // the lock could be guarded if the takeover had not come
	take   func(t testing.TB, e *env, a App, h protocol.Held, holder protocol.Holder) error
}

var takeovers = map[string]takeover{
	"of a dead session":          {take: fromTheDead},
	"of a share of the dead":     {units: 1, take: fromTheDead},
	"of a fixed lease":           {lease: time.Minute, take: whenOver("dblock_locks")},
	"of a share's lease":         {lease: time.Minute, units: 1, take: whenOver("dblock_shares")},
	"of the living, by Break":    {living: true, take: byBreak},
	"of a share, by Break":       {units: 1, living: true, take: byBreak},
	"of the living by the owner": {living: true, take: byTheOwner},
}

// takeovers runs a test once for each isolation level and each takeover, with two pools.
func (e *env) takeovers(
	t *testing.T, test func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover),
) {
	a, other := e.app(t, 5), e.app(t, 5)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for kind, w := range takeovers {
			t.Run(kind, func(t *testing.T) { test(t, a, other, name+kind, level, w) })
		}
	})
}

func fromTheDead(t testing.TB, e *env, a App, h protocol.Held, holder protocol.Holder) error {
	e.exec(t, "UPDATE dblock_heartbeats SET expires_at = 0 WHERE session_id = ?", h.Session)
	return byTime(t, a, h, holder)
}

func whenOver(table string) func(t testing.TB, e *env, a App, h protocol.Held, holder protocol.Holder) error {
	return func(t testing.TB, e *env, a App, h protocol.Held, holder protocol.Holder) error {
		e.exec(t, "UPDATE "+table+" SET expires_at = 1 WHERE name = ? AND token = ? AND expires_at > 1", h.Name,
			h.Token)
		return byTime(t, a, h, holder)
	}
}

func byTime(t testing.TB, a App, h protocol.Held, holder protocol.Holder) error {
	return taken(func() (bool, error) {
		_, ok, err := drivertest.TakeOver(brief(t), a.Backend, "", h.Name, holder)
		return ok, err
	})
}

func byBreak(t testing.TB, _ *env, a App, h protocol.Held, holder protocol.Holder) error {
	return taken(func() (bool, error) {
		_, ok, err := drivertest.Break(brief(t), a.Backend, "", h.Name, holder, protocol.Event{Name: h.Name,
			Kind: "broken"})
		return ok, err
	})
}

func byTheOwner(t testing.TB, _ *env, a App, h protocol.Held, holder protocol.Holder) error {
	id := openSession(t, a.Backend)
	return taken(func() (bool, error) {
		result, err := driver.Do(brief(t), a.Backend, protocol.Reenter{Request: protocol.Request{Name: h.Name,
			Session: id, Host: "h", Thread: holder.Thread, Attempt: id}})
		return result.Done(), err
	})
}

// openSession opens a session without a client.
func openSession(t testing.TB, b driver.Backend) string {
	t.Helper()
	s := id()
	require.NoError(t, b.OpenSession(brief(t), driver.Session{ID: s, Host: "h", TTL: time.Hour}))
	return s
}

// takeFor takes a name for a session of its own, as a takeover wants it, without a client.
func (e *env) takeFor(t testing.TB, a App, name string, w takeover) (protocol.Held, protocol.Holder) {
	t.Helper()
	return e.takeAs(t, a, name, openSession(t, a.Backend), w)
}

// takeAs is takeFor in a session that is there.
func (e *env) takeAs(t testing.TB, a App, name, session string, w takeover) (protocol.Held, protocol.Holder) {
	t.Helper()
	r := protocol.Request{Name: name, Session: session, Host: "h", Thread: id(), Attempt: id(), Lease: w.lease,
		Patient: true}
	if r.Units = w.units; w.units > 0 {
		r.Of = protocol.Readers
	}
	g, ok, err := drivertest.Take(t.Context(), a.Backend, r)
	if err != nil || !ok {
		t.Fatalf("take: %v, %v", ok, err)
	}
	h := protocol.Holder{Session: session, Thread: r.Thread, Attempt: r.Attempt, Units: w.units,
		Grant: protocol.Grant{Token: g.Token}}
	if w.lease > 0 {
		h.Grant.Lease = -1 // as it looks when it is over
	}
	return protocol.Held{Name: name, Session: session, Token: g.Token, Shared: w.units > 0}, h
}

// taken makes a takeover, again where another transaction has locked a row or a table in passing:
// the driver leaves that to its caller. What a guard refuses is not repeated.
func taken(takeOver func() (ok bool, err error)) error {
	for tries := 1; ; tries++ {
		switch ok, err := takeOver(); {
		case errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrGuarded) && tries < 20:
		case err == nil && !ok:
			return errors.New("not taken over")
		default:
			return err
		}
	}
}

// limited is a context that ends after a while.
func limited(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// brief is a context for what must not wait for long.
func brief(t testing.TB) context.Context { return limited(t, soon) }

// guardIn makes the guard of a lock, and has a new transaction guard it.
func guardIn(t testing.TB, a App, level sql.IsolationLevel, h protocol.Held) Tx {
	t.Helper()
	require.NoError(t, a.makeGuard(t.Context(), h))
	tx := beginTx(t, a, level)
	require.NoError(t, a.guard(t.Context(), tx, h))
	return tx
}

// Broken by a guard that is of the session, or of the name.
func guardedBeside(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // a transaction that writes keeps everybody else from writing, guarded or not
		return
	}
	e.takeovers(t, func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover) {
		guarded, holder := e.takeFor(t, a, name+"/1", w)
		free, freeHolder := e.takeAs(t, a, name+"/2", guarded.Session, w)
		var share protocol.Held
		var shareHolder protocol.Holder
		if w.units > 0 {
			share, shareHolder = e.takeFor(t, a, name+"/1", w)
		}
		tx := guardIn(t, a, level, guarded)
		require.NoError(t, a.makeGuard(t.Context(), free))
		assert.NoError(t, w.take(t, e, other, free, freeHolder), "taking over what is not guarded")
		if w.units > 0 {
			assert.NoError(t, w.take(t, e, other, share, shareHolder), "taking over another share")
		}
		is(t, w.take(t, e, other, guarded, holder), driver.ErrBusy)
		e.commitOne(t, tx)
		assert.NoError(t, w.take(t, e, other, guarded, holder), "taking over after the transaction")
	})
}

// Broken by a takeover that does not announce itself, by a Guard that does not look for that, or by
// an announcement of the session or the name.
func guardAnnounced(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		return
	}
	e.takeovers(t, func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover) {
		guarded, holder := e.takeFor(t, a, name+"/1", w)
		beside, _ := e.takeAs(t, a, name+"/2", guarded.Session, w)
		first := guardIn(t, a, level, guarded)
		is(t, w.take(t, e, other, guarded, holder), driver.ErrBusy)
		refused := func() {
			t.Helper()
			e.exec(t, "UPDATE dblock_wanted SET wanted_until = wanted_until + ? WHERE wanted_until > 1",
				longTTL.Microseconds()) // so that the machine may be slow
			tx := beginTx(t, a, level)
			defer rollback(t, tx)
			want := driver.ErrNotHeld
			if w.living {
				want = driver.ErrRetry
			}
			is(t, a.guard(brief(t), tx, guarded), want)
		}
		refused()
		if w.living && e.wiring.Kind != TiDB { // where the second would wait for the first
			rollback(t, guardIn(t, a, level, beside)) // of the same client
			e.exec(t, "UPDATE dblock_wanted SET wanted_until = 1")
			second := guardIn(t, a, level, guarded) // the client that took it may be dead
			is(t, w.take(t, e, other, guarded, holder), driver.ErrBusy)
			refused()
			rollback(t, second)
		}
		e.commitOne(t, first)
		assert.NoError(t, w.take(t, e, other, guarded, holder), "taking over after the transaction")
	})
}

// The reported case: it took the other locks of the client for guarded, and let new guards of the
// same lock begin all the time.
func guardedAgain(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		return
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 12)
	c, other := e.clientOf(t, a), e.client(t)
	busy, end := context.WithCancel(t.Context())
	guarding := make(chan error, 8)
	again := func(l *dblock.Lock) {
		for busy.Err() == nil {
			tx, err := a.begin(context.Background(), e.levels()[0])
			if err == nil {
				err = c.Guard(context.Background(), tx, l)
				if err == nil {
					<-time.After(25 * time.Millisecond)
				}
				_ = tx.rollback()
			}
			if errors.Is(err, dblock.ErrLost) {
				break
			}
		}
		guarding <- nil
	}
	same := lock(t, c, "same")
	for range 4 {
		go again(same)
	}
	for _, name := range []string{"1", "2", "3", "4"} {
		go again(lock(t, c, name))
	}
	defer func() {
		end()
		for range 8 {
			within(t, patience, "the transactions end", guarding)
		}
	}()
	lock(t, c, "leased", dblock.Lease(longTTL))
	lock(t, c, "broken")
	waiting := e.waiter(t, other, "leased")
	e.advance(t, longTTL+time.Second)
	granted(t, patience, waiting)
	for _, name := range []string{"broken", "same"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if n, err := other.Break(ctx, name, "the test wants it"); n != 1 || err != nil {
			t.Errorf("breaking %q: %d, %v", name, n, err)
		}
		cancel()
	}
	ended(t, soon, same, dblock.ErrLost)
}

// Broken by a Close that releases what its session still has, without checking for guarded
// transactions.
func guardedAfterClose(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		return
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	l, tx := e.leased(t, c, a)
	e.advance(t, longTTL+time.Second)
	ended(t, patience, l, dblock.ErrLost)
	assert.NoError(t, c.Close(t.Context()), "Close beside a guarded transaction")
	if holder := e.session(t, "n"); holder == "" {
		t.Error("given away under a guarded transaction")
	}
	refused(t, other, "n")
	waiting := e.waiter(t, other, "n")
	e.advance(t, 2*longTTL)
	stillWaits(t, 0, waiting)
	e.commitOne(t, tx)
	e.advanceUntil(t, 2*longTTL, "the waiter has the lock", func() bool { return len(waiting) > 0 })
	unlock(t, granted(t, soon, waiting))
	e.free(t, "n")
}

// Broken by a Guard that takes a missing row for a lock without an announced takeover.
func guardUnmade(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		return
	}
	a, c := e.appClient(t, 5)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		l := lock(t, c, name)
		tx := beginTx(t, a, level)
		require.NoError(t, c.Guard(t.Context(), tx, l))
		rollback(t, tx)
		e.exec(t, "DELETE FROM dblock_guards") // by an operator
		tx = beginTx(t, a, level)
		is(t, c.Guard(t.Context(), tx, l), driver.ErrRetry)
		e.usable(t, tx)
		tx = beginTx(t, a, level)
		assert.NoError(t, c.Guard(t.Context(), tx, l), "the transaction anew")
		rollback(t, tx)

		// A guard that is newer than the snapshot.
		l = lock(t, c, name+"/new")
		tx = beginTx(t, a, level)
		snapshot(t, tx)
		err := c.Guard(t.Context(), tx, l)
		if e.snapshots(t, level) && e.wiring.Kind != TiDB { // where only the lock must not be newer
			is(t, err, driver.ErrRetry)
			var state interface{ SQLState() string }
			if e.wiring.Kind == Postgres && (!errors.As(err, &state) || state.SQLState() != "40001") {
				t.Errorf("%v has no SQLSTATE 40001", err)
			}
		} else if err != nil {
			t.Error(err)
		}
		e.usable(t, tx)
		tx = beginTx(t, a, level)
		snapshot(t, tx)
		assert.NoError(t, c.Guard(t.Context(), tx, l), "the transaction anew")
		rollback(t, tx)
	})
}
