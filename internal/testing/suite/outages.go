package suite

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

var outages = inPlaces(own{
	{"a failover through a server that is read-only fails no Lock and no Unlock, but the first of a client",
		throughStandby},
	{"connections that a failover has left at a server that is read-only are dropped", leftAtStandby},
	{"a pool that the application has closed is said so at once", closedPool},
	{"places in one queue are given up although nothing can be done in another", otherQueueBusy},
	{"a second Unlock while the first is being repeated says what came of that", unlockRepeated},
	{"what cannot be given back is tried again, whatever the error", givenBackAfterAll},
	{"Unlock with a pool that others have exhausted says so within a TTL, and goes on in the background",
		exhaustedPool},
}, moving{
	{"a Lock gives up after a TTL without an answer, and so does Unlock, which goes on in the background", outageOfTTL},
	{"any number of short breaks fails no Lock", shortBreaks},
	{"an Unlock whose session ends before it is answered is no loss", sessionEndsInUnlock},
}, flowing{
	{"Do says once, on one line, that its lock was lost", lostInDo},
	{"Unlock of a lock that is lost says so at once, whatever is under way", lostBesideStatement},
})

// troubled is a server that answers some statements with an error.
type troubled struct {
	trouble atomic.Pointer[error] // nil: none
	met     atomic.Int64          // how many statements met it
	only    string                // the name that it is with; "": any
}

// troubled makes clients of an App whose server will have trouble.
func (a *App) troubled() *troubled {
	b := &troubled{}
	a.hook(b.hook)
	return b
}

func (b *troubled) set(kind error) {
	if kind == nil {
		b.trouble.Store(nil)
		return
	}
	err := driver.Fail(kind, errors.New("a test says so"))
	b.met.Store(0)
	b.trouble.Store(&err)
}

// hits waits until so many statements more have met the trouble.
func (b *troubled) hits(t testing.TB, n int64) {
	t.Helper()
	n += b.met.Load()
	eventually(t, patience, "statements meet the trouble", func() bool { return b.met.Load() >= n })
}

func (b *troubled) now(name string) error {
	err := b.trouble.Load()
	if err == nil || b.only != "" && b.only != name {
		return nil
	}
	b.met.Add(1)
	return *err
}

func (b *troubled) hook(ctx context.Context, c *fakedb.Call) error {
	name := ""
	if op := c.Op(); op != nil {
		name = op.On()
	}
	if c.Method == "OpenSession" || c.Method == "Run" {
		if err := b.now(name); err != nil {
			return err
		}
	}
	return c.Do(ctx)
}

// unlocking unlocks in the background.
func unlocking(l *dblock.Lock) chan error {
	return async(func() error { return l.Unlock(context.Background()) })
}

// Broken by taking ErrReadOnly for final, and by waiting for it in a client that never wrote.
func throughStandby(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	c, fresh := e.clientOf(t, a), e.clientOf(t, a)
	held := lock(t, c, "held")
	server.set(driver.ErrReadOnly)
	waiting, released := locking(t.Context(), c, "n"), unlocking(held)
	server.hits(t, 6)
	is(t, assert.ErrOf(fresh.Lock(t.Context(), "n")), dblock.ErrReadOnly)
	stillWaits(t, 0, waiting)
	stillWaits(t, 0, released)
	server.set(nil)
	unlock(t, granted(t, soon, waiting))
	is(t, within(t, soon, "Unlock returns", released), nil)
	e.free(t, "held")
}

// Broken by a client that tries again on the connection that said so.
func leftAtStandby(t *testing.T, e *env) {
	readOnly := "SET SESSION TRANSACTION READ ONLY"
	switch {
	case e.wiring.Kind == Postgres:
		readOnly = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
	case e.wiring.Kind == SQLite || e.wiring.Through != nil:
		t.Skip("a file has no other server")
	case e.wiring.plain():
		t.Skip("no server of a cluster is read-only, and no session")
	}
	a, c := e.appClient(t, 4)
	unlock(t, lock(t, c, "to have a session"))
	all := []Tx{beginTx(t, a, e.levels()[0]), beginTx(t, a, e.levels()[0])} // a pool of database/sql keeps no more
	for _, tx := range all {
		is(t, tx.exec(t.Context(), readOnly), nil)
	}
	for _, tx := range all {
		commit(t, tx)
	}
	unlock(t, lock(t, c, "n"))
}

// Broken by an Unlock that tries for as long as its session lives, and by one that leaves what it
// could not give back.
func outageOfTTL(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	c := e.clientOf(t, a)
	held := lock(t, c, "held")
	server.set(driver.ErrUnavailable)
	waiting, released := locking(t.Context(), c, "n"), unlocking(held)
	server.hits(t, 6)
	e.advance(t, longTTL/2)
	server.hits(t, 6)
	stillWaits(t, 0, waiting)
	stillWaits(t, 0, released)
	e.advance(t, longTTL)
	is(t, within(t, soon, "Lock returns", waiting).err, dblock.ErrUnavailable)
	is(t, within(t, soon, "Unlock returns", released), dblock.ErrUnavailable)
	ended(t, soon, held, dblock.ErrNotHeld)
	server.set(nil)
	unlock(t, lock(t, e.client(t), "held"))
}

// Broken by counting from the first break, whatever was answered since.
func shortBreaks(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	c := e.clientOf(t, a)
	unlock(t, lock(t, c, "to have a session"))
	for _, answer := range []error{driver.ErrBusy, driver.ErrRetry} {
		server.set(driver.ErrUnavailable)
		waiting := locking(t.Context(), c, "n")
		server.hits(t, 1)
		server.set(answer)
		server.hits(t, 3)
		e.advance(t, longTTL+time.Second)
		server.set(driver.ErrUnavailable)
		server.hits(t, 3)
		server.set(nil)
		unlock(t, granted(t, soon, waiting))
	}
}

// Broken by an Unlock that waits for a connection for ever.
func exhaustedPool(t *testing.T, e *env) {
	a := e.app(t, 5)
	if a.borrow == nil || e.wiring.Kind == SQLite || e.wiring.plain() {
		// no pool, or one that work of its own does not go through
		t.Skip("no pool that could be exhausted")
	}
	c := e.clientOf(t, a, dblock.WithTTL(dbtest.Scale(4*time.Second)))
	held := lock(t, c, "n")
	giveBack := e.exhaust(t, a)
	err := within(t, patience, "Unlock returns", unlocking(held))
	giveBack()
	keeps := ", and dblock keeps none of them"
	if e.wiring.Kind != Postgres || e.wiring.Name != "pgx" {
		keeps = "1 for heartbeats"
	}
	says(t, err, dblock.ErrUnavailable, "connections of the pool are in use", keeps)
	unlock(t, lock(t, e.client(t), "n"))
}

// behind has so many requests of a client wait for a name that another client has.
func (e *env) behind(t testing.TB, c Client, name string, n int) (holder *dblock.Lock, leave func()) {
	t.Helper()
	holder = lock(t, e.client(t), name)
	ctx, cancel := context.WithCancel(t.Context())
	var all []<-chan outcome
	for range n {
		all = append(all, locking(ctx, c, name))
	}
	e.queued(t, name, n)
	return holder, func() {
		t.Helper()
		cancel()
		for _, one := range all {
			is(t, within(t, soon, "Lock returns", one).err, context.Canceled)
		}
	}
}

// Broken by taking the error of one queue for that of all.
func otherQueueBusy(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	server.only = "busy"
	c := e.clientOf(t, a)
	first, leaveBusy := e.behind(t, c, "busy", 4)
	second, leaveOther := e.behind(t, c, "other", 4)
	server.set(driver.ErrBusy)
	leaveBusy()
	leaveOther()
	server.hits(t, 2)
	e.queued(t, "other", 0)
	server.set(nil)
	e.queued(t, "busy", 0)
	unlock(t, first)
	unlock(t, second)
}

// Broken by giving up after one try: the place is in the way of all others until the session ends.
func givenBackAfterAll(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	for _, n := range []int{1, 3} {
		c := e.clientOf(t, a)
		holder, leave := e.behind(t, c, "n", n)
		server.set(errors.ErrUnsupported)
		leave()
		server.hits(t, 4)
		server.set(nil)
		e.queued(t, "n", 0)
		unlock(t, holder)
	}
}

// Broken by taking an attempt that is being given back for one that somebody has taken away.
func unlockRepeated(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	l := lock(t, e.clientOf(t, a), "n")
	server.set(driver.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	first := async(func() error { return l.Unlock(ctx) })
	server.hits(t, 2)
	cancel()
	is(t, within(t, soon, "the first returns", first), driver.ErrUnavailable)
	second := unlocking(l)
	server.hits(t, 4)
	stillWaits(t, 0, second)
	server.set(nil)
	is(t, within(t, soon, "the second returns", second), nil)
	e.free(t, "n")
}

// Broken by a loss that is none: the lock was held until Unlock was called.
func sessionEndsInUnlock(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	l := lock(t, e.clientOf(t, a), "n")
	server.set(driver.ErrUnavailable)
	released := unlocking(l)
	server.hits(t, 2)
	e.end(t, e.session(t, "n"))
	e.advanceUntil(t, longTTL, "Unlock returns", func() bool { return len(released) > 0 })
	if err := <-released; !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	unlock(t, l) // nothing is left of it
}

// Broken by an Unlock that waits for what else is under way with the lock, for up to a TTL.
func lostBesideStatement(t *testing.T, e *env) {
	a := e.app(t, 5)
	asked := make(chan struct{}, 1)
	a.hook(func(ctx context.Context, c *fakedb.Call) error {
		if _, records := c.Op().(protocol.Announce); !records {
			return c.Do(ctx)
		}
		asked <- struct{}{} // and the server does not answer
		<-ctx.Done()
		return ctx.Err()
	})
	c := e.clientOf(t, a)
	l := lock(t, c, "n")
	recorded := async(func() error { return l.Record(t.Context(), "note", "") })
	within(t, soon, "an event is being recorded", asked)
	e.end(t, e.session(t, "n"))
	ended(t, soon, l, dblock.ErrLost)
	is(t, within(t, soon, "Unlock returns", unlocking(l)), dblock.ErrLost)
	stillWaits(t, 0, recorded)
}

// Broken by taking a pool that was closed for a database that is away.
func closedPool(t *testing.T, e *env) {
	e.needsSQL(t)
	if e.wiring.plain() {
		t.Skip("all work is done on connections that the client has reserved")
	}
	a, c := e.appClient(t, 5)
	l := lock(t, c, "n")
	a.close()
	_, err := c.Lock(t.Context(), "other")
	for _, err := range []error{err, l.Unlock(t.Context())} {
		saysOnce(t, err, dblock.ErrConfig, "closed the pool")
	}
}

// Broken by errors that are joined as they come.
func lostInDo(t *testing.T, e *env) {
	err := e.client(t).Do(t.Context(), "n", func(ctx context.Context, _ *dblock.Lock) error {
		e.end(t, e.session(t, "n"))
		<-ctx.Done()
		return context.Cause(ctx)
	})
	saysOnce(t, err, dblock.ErrLost, "lost")
}

// exhaust borrows all connections that the pool gives.
func (e *env) exhaust(t testing.TB, a App) (giveBack func()) {
	t.Helper()
	var borrowed []func()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // a connect that is given up may still add one
		one, err := a.borrow(ctx)
		cancel()
		if err != nil {
			break
		}
		borrowed = append(borrowed, one)
	}
	return func() {
		for _, one := range borrowed {
			one()
		}
	}
}
