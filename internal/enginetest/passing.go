package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
)

var passing = inPlaces(own{
	{"goroutines of one client pass a lock on in the order in which they asked, each with a token of its own", passedOn},
	{"a holder that keeps a lock for longer than a moment is shown as its holder", shownHolder},
	{"a lock that was passed on is guarded, entered again and asked for as any other", usedAfterPassing},
	{"Break of a lock that was passed on ends it for its holder, and those behind it get it later", brokenAfterPassing},
	{"Break that meets a lock that is settled meanwhile takes it from its holder", brokenWhileSettled},
	{"Break with any token of a lock that is passed on takes it, and with one from before nothing", brokenByToken},
	{"Break with the token of a lock that is settled meanwhile takes it from its holder", brokenByTokenWhileSettled},
	{"the transaction of UnlockTx releases a lock that was passed on", unlockTxAfterPassing},
	{"a transaction that has written guards a lock that was passed on", guardedByAWriter},
	{"a transaction that has written releases a lock that was passed on, if it commits", releasedByAWriter},
	{"a cycle of waiters through a lock that was passed on is found", cycleThroughPassing},
	{"Close of a client that passes a lock on leaves it to another client", closedWhilePassing},
	{"a waiter that gives up while a lock is passed on is passed over", leftWhilePassing},
})

// counting counts what is sent of a lock. Settle waits until it may be sent, unless it is on the
// first member of a run: on a slow machine that has the lock for as long as a run goes on.
type counting struct {
	driver.Backend
	may   chan struct{} // nil: at once
	first func(name string) (token int64)

	vacated, settled atomic.Int64
}

func (c *counting) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	c.vacated.Add(1)
	return c.Backend.Vacate(ctx, v)
}

func (c *counting) Settle(ctx context.Context, h driver.Held, singly bool) error {
	c.settled.Add(1)
	if c.may != nil && h.Token != c.first(h.Name) {
		<-c.may
	}
	return c.Backend.Settle(ctx, h, singly)
}

// relay is a client of which some goroutines are about to get a lock as one run.
type relay struct {
	*counting
	app     App
	client  Client
	waiters []<-chan outcome
	cancels []context.CancelFunc
	before  Lock // of another client, which has the lock until then
}

// relay has goroutines of one client queue behind another client, one after the other.
func (e *env) relay(t *testing.T, name string, n int, options ...dblock.Option) *relay {
	t.Helper()
	a := e.app(t, 5)
	r := &relay{app: a, counting: &counting{Backend: a.Backend, first: func(name string) int64 {
		return e.number(t, "SELECT first_token FROM dblock_locks WHERE name = ?", name)
	}}}
	a.client = a.clientOn(r.counting)
	r.client = e.clientOf(t, a, options...)
	r.before = lock(t, e.client(t), name)
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		r.waiters, r.cancels = append(r.waiters, locking(ctx, r.client, name)), append(r.cancels, cancel)
		e.queued(t, name, i+1)
	}
	return r
}

func passedOn(t *testing.T, e *env) {
	const n = 5
	r := e.relay(t, "n", n)
	unlock(t, r.before)
	last := r.before.Token()
	for i, waiter := range r.waiters {
		l := granted(t, soon, waiter)
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		for j, other := range r.waiters[i+1:] {
			select {
			case <-other:
				t.Fatalf("%d has the lock as well as %d", i+1+j, i)
			default:
			}
		}
		unlock(t, l)
	}
	e.free(t, "n")
	if v, s := r.vacated.Load(), r.settled.Load(); v+s > 4 { // two where this machine is in time
		t.Errorf("%d statements took it off, and %d settled it, of %d locks", v, s, n)
	}
	next := lock(t, r.client, "n")
	if next.Token() <= last {
		t.Errorf("token %d after %d", next.Token(), last)
	}
	unlock(t, next)
}

// second lets the first member of a relay's run have the lock and pass it on, and returns the
// second's lock.
func (r *relay) second(t *testing.T) Lock {
	t.Helper()
	unlock(t, r.before)
	unlock(t, granted(t, soon, r.waiters[0]))
	return granted(t, soon, r.waiters[1])
}

func shownHolder(t *testing.T, e *env) {
	r := e.relay(t, "n", 3)
	l := r.second(t)
	eventually(t, soon, "the row shows the holder", func() bool {
		return e.number(t, "SELECT last_token FROM dblock_locks WHERE name = 'n' AND first_token = last_token") == l.Token()
	})
	info, err := r.client.Inspect(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Holders) != 1 || info.Holders[0].Token != l.Token() || len(info.Waiters) != 1 {
		t.Errorf("%+v", info)
	}
	live(t, l)
	unlock(t, l)
	unlock(t, granted(t, soon, r.waiters[2]))
	e.free(t, "n")
}

func usedAfterPassing(t *testing.T, e *env) {
	for what, use := range map[string]func(t *testing.T, r *relay, l Lock){
		"Guard": func(t *testing.T, r *relay, l Lock) {
			tx := beginTx(t, r.app, e.readCommitted())
			if err := l.Guard(t.Context(), tx); err != nil {
				t.Error(err)
			}
			commit(t, tx)
		},
		"again": func(t *testing.T, r *relay, l Lock) {
			again, err := r.client.Lock(l.Context(), "again")
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, again)
		},
		"Downgrade": func(t *testing.T, r *relay, l Lock) {
			if err := l.Downgrade(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"Ask": func(t *testing.T, r *relay, l Lock) {
			asked := l.Asked()
			if err := r.client.Ask(t.Context(), "Ask", "why not"); err != nil {
				t.Fatal(err)
			}
			select {
			case reason := <-asked:
				if reason != "why not" {
					t.Errorf("asked: %q", reason)
				}
			case <-time.After(soon):
				t.Error("not asked")
			}
		},
	} {
		r := e.relay(t, what, 3)
		l := r.second(t)
		use(t, r, l)
		live(t, l)
		unlock(t, l)
		next := granted(t, soon, r.waiters[2])
		if next.Token() <= l.Token() {
			t.Errorf("%s: token %d after %d", what, next.Token(), l.Token())
		}
		unlock(t, next)
		e.free(t, what)
	}
}

func brokenAfterPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	if n, err := e.client(t).Break(t.Context(), "n", "a test"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	within(t, soon, "the lock ends", l.Context().Done())
	is(t, context.Cause(l.Context()), dblock.ErrLost)
	is(t, l.Unlock(context.Background()), dblock.ErrLost)
	for _, waiter := range r.waiters[2:] {
		next := granted(t, soon, waiter)
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		unlock(t, next)
	}
	e.free(t, "n")
}

// describing does something after each look at the holders of names.
type describing struct {
	driver.Backend
	after func()
}

func (d describing) Describe(ctx context.Context, names []string, waiters int) ([]driver.Detail, error) {
	defer d.after()
	return d.Backend.Describe(ctx, names, waiters)
}

func brokenWhileSettled(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	r.may = make(chan struct{})
	l := r.second(t)
	a := e.app(t, 5)
	a.client = a.clientOn(describing{a.Backend, sync.OnceFunc(func() {
		close(r.may)
		eventually(t, patience, "the row shows the holder", func() bool {
			return e.number(t, "SELECT last_token FROM dblock_locks WHERE name = 'n' AND first_token = last_token") == l.Token()
		})
	})})
	if n, err := e.clientOf(t, a).Break(t.Context(), "n", "a test"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	within(t, soon, "the lock ends", l.Context().Done())
	for _, waiter := range r.waiters[2:] {
		unlock(t, granted(t, soon, waiter))
	}
	e.free(t, "n")
}

func brokenByToken(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	r.may = make(chan struct{})
	l := r.second(t)
	c := e.client(t)
	if n, err := c.Break(t.Context(), "n", "a test", r.before.Token()); n != 0 || err != nil {
		t.Error(n, err)
	}
	live(t, l)
	if n, err := c.Break(t.Context(), "n", "a test", l.Token()); n != 1 || err != nil {
		t.Error(n, err)
	}
	close(r.may)
	within(t, soon, "the lock ends", l.Context().Done())
	for _, waiter := range r.waiters[2:] {
		unlock(t, granted(t, soon, waiter))
	}
	e.free(t, "n")
}

// afterLook does something after each look at the state of names.
type afterLook struct {
	driver.Backend
	after func()
}

func (l afterLook) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	defer l.after()
	return l.Backend.Look(ctx, session, names)
}

func brokenByTokenWhileSettled(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	r.may = make(chan struct{})
	l := r.second(t)
	last := e.number(t, "SELECT last_token FROM dblock_locks WHERE name = 'n'")
	a := e.app(t, 5)
	a.client = a.clientOn(afterLook{a.Backend, sync.OnceFunc(func() {
		close(r.may)
		eventually(t, patience, "the row shows the holder", func() bool {
			return e.number(t, "SELECT last_token FROM dblock_locks WHERE name = 'n' AND first_token = last_token") == l.Token()
		})
	})})
	if n, err := e.clientOf(t, a).Break(t.Context(), "n", "a test", last); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	within(t, soon, "the lock ends", l.Context().Done())
	for _, waiter := range r.waiters[2:] {
		unlock(t, granted(t, soon, waiter))
	}
	e.free(t, "n")
}

func unlockTxAfterPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 3)
	l := r.second(t)
	tx := beginTx(t, r.app, e.readCommitted())
	if err := l.UnlockTx(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.waiters[2]:
		t.Fatal("the next has the lock before the commit")
	case <-time.After(100 * time.Millisecond):
	}
	commit(t, tx)
	_ = l.Unlock(context.Background())
	unlock(t, granted(t, soon, r.waiters[2]))
	e.free(t, "n")
}

// writer has a lock passed on, and opens a transaction that has written while that is being
// settled: on SQLite no statement that settles it can run before the transaction ends.
func (e *env) writer(t *testing.T, name string) (r *relay, l Lock, tx Tx, settled func()) {
	t.Helper()
	r = e.relay(t, name, 4)
	r.may = make(chan struct{})
	l = r.second(t)
	settled = func() {}
	if e.wiring.Kind == SQLite {
		settled = sync.OnceFunc(func() { close(r.may) })
		t.Cleanup(settled)
	} else {
		close(r.may)
	}
	tx = beginTx(t, r.app, e.readCommitted())
	if err := tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	return r, l, tx, settled
}

// Broken by waiting until the lock is settled.
func guardedByAWriter(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	r, l, tx, settled := e.writer(t, "n")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := l.Guard(ctx, tx); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	live(t, l)
	settled()
	unlock(t, l)
	for _, waiter := range r.waiters[2:] {
		next := granted(t, soon, waiter)
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		unlock(t, next)
	}
	e.free(t, "n")
}

// Broken likewise, and by an Unlock that takes what the transaction has released for a loss.
func releasedByAWriter(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	for end, finish := range map[string]func(testing.TB, Tx){"commit": commit, "rollback": rollback} {
		r, l, tx, settled := e.writer(t, end)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		if err := l.UnlockTx(ctx, tx); err != nil {
			t.Fatal(err)
		}
		finish(t, tx)
		live(t, l)
		if end == "rollback" && len(r.waiters[2]) > 0 {
			t.Error("the next has the lock after a rollback")
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.Unlock(context.Background()) }()
		settled()
		if err := within(t, soon, "unlocked", unlocked); err != nil {
			t.Errorf("%s: %v", end, err)
		}
		for _, waiter := range r.waiters[2:] {
			next := granted(t, soon, waiter)
			if next.Token() <= l.Token() {
				t.Errorf("%s: token %d after %d", end, next.Token(), l.Token())
			}
			unlock(t, next)
		}
		e.free(t, end)
	}
}

func cycleThroughPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 3, dblock.WithDeadlockCheck(50*time.Millisecond))
	other := e.client(t, dblock.WithDeadlockCheck(50*time.Millisecond))
	m := lock(t, other, "m")
	l := r.second(t)
	back := locking(m.Context(), other, "n") // behind the third
	ahead := locking(l.Context(), r.client, "m")
	select {
	case o := <-back:
		is(t, o.err, dblock.ErrDeadlock)
		unlock(t, m)
		unlock(t, granted(t, soon, ahead))
		unlock(t, l)
	case o := <-ahead:
		is(t, o.err, dblock.ErrDeadlock)
		unlock(t, l)
		unlock(t, granted(t, soon, r.waiters[2]))
		unlock(t, granted(t, soon, back))
		unlock(t, m)
		return
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
	unlock(t, granted(t, soon, r.waiters[2]))
}

func closedWhilePassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	r.second(t)
	behind := locking(t.Context(), e.client(t), "n")
	eventually(t, soon, "another client waits", func() bool {
		return e.number(t, "SELECT count(DISTINCT session_id) FROM dblock_waiters WHERE name = 'n'") == 2
	})
	if err := r.client.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, waiter := range r.waiters[2:] {
		if o := within(t, soon, "a waiter of the closed client returns", waiter); !errors.Is(o.err, dblock.ErrClosed) {
			t.Errorf("%v", o.err)
		}
	}
	unlock(t, granted(t, soon, behind))
	e.free(t, "n")
}

func leftWhilePassing(t *testing.T, e *env) {
	const n = 6
	r := e.relay(t, "n", n)
	l := r.second(t)
	for _, i := range []int{2, 4} {
		r.cancels[i]()
		is(t, within(t, soon, fmt.Sprintf("%d gives up", i), r.waiters[i]).err, context.Canceled)
	}
	unlock(t, l)
	unlock(t, granted(t, soon, r.waiters[3]))
	unlock(t, granted(t, soon, r.waiters[5]))
	e.free(t, "n")
}
