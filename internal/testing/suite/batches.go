package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var batches = inPlaces(own{
	{"many goroutines with a name each share statements, and each gets what is its own", sharedStatements},
	{"a batch passes over a name that an application's transaction has locked", batchBesideATransaction},
	{"what came of a batch whose answer was lost is found out and given back", lostBatch},
	{"a fixed lease that a batch grants counts from before the batch was sent", leaseOfBatch},
	{"a batch in which one would have to wait fails for none", busyBatch},
	{"places in a queue are given up, and what fits then is handed on", leaveMany},
	{"a batch passes over a name that others wait for, and over one that rests", batchPasses},
	{"two hundred waiters of one name that give up leave nothing", crowdLeaves},
	{"who gives up while a batch is under way gets nothing and leaves nothing", leftBatch},
})

// crowded is a database that answers single requests for some names late, so that other requests
// pile up behind them.
type crowded struct {
	late  chan struct{} // closed when the late ones are answered
	batch func(do func() error) error

	singles, batches, changes, undone atomic.Int64
}

func (c *crowded) hook(ctx context.Context, call *fakedb.Call) error {
	if len(call.Ops) > 1 {
		c.batches.Add(1)
		c.changes.Add(int64(len(call.Ops)))
		return c.batch(func() error { return call.Do(ctx) })
	}
	if take, is := call.Op().(protocol.Take); is && strings.HasPrefix(take.Name, "late ") {
		c.singles.Add(1)
		<-c.late
	}
	if call.Removes(protocol.ByAttempt) {
		c.undone.Add(1)
	}
	return call.Do(ctx)
}

// crowd makes a client whose batches run through a function.
func (e *env) crowd(t *testing.T, batch func(do func() error) error) (*crowded, Client) {
	a := e.app(t, 5)
	c := &crowded{late: make(chan struct{}), batch: batch}
	a.hook(c.hook)
	return c, e.clientOf(t, a)
}

// pile has the client wait for two single statements, so that what it is asked for next goes
// together, unless this machine is slow. The locks are unlocked when the test has ended.
func (c *crowded) pile(t *testing.T, client Client) {
	before := c.singles.Load()
	late := asks(context.Background(), client, fmt.Sprint("late ", before), fmt.Sprint("late ", before+1))
	eventually(t, patience, "two statements are under way", func() bool { return c.singles.Load() == before+2 })
	t.Cleanup(func() {
		for _, one := range late {
			unlock(t, granted(t, soon, one))
		}
	})
}

func sharedStatements(t *testing.T, e *env) {
	c, client := e.crowd(t, plainly)
	const names, rounds = 24, 6
	var holders [names]atomic.Int64
	var all sync.WaitGroup
	for i := range 2 * names { // two for each name
		all.Go(func() {
			last := int64(0)
			for range rounds {
				l, err := client.Lock(t.Context(), fmt.Sprint("name ", i%names))
				if err != nil {
					t.Error(err)
					return
				}
				assert.Equal(t, holders[i%names].Add(1), 1, "hold one name")
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				holders[i%names].Add(-1)
				assert.NoError(t, l.Unlock(t.Context()))
			}
		})
	}
	all.Wait()
	for i := range names {
		e.free(t, fmt.Sprint("name ", i))
	}
	e.needsSQL(t) // in memory a statement is over before the next one
	if batches, changes := c.batches.Load(), c.changes.Load(); batches == 0 || changes < 2*batches {
		t.Errorf("%d changes in %d batches", changes, batches)
	}
}

func plainly(do func() error) error { return do() }

func batchBesideATransaction(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		t.Skip("SQLite has one writer at a time")
	}
	c, client := e.crowd(t, plainly)
	defer close(c.late)
	a := e.app(t, 5)
	other := e.clientOf(t, a)
	unlock(t, lock(t, other, "k"))
	tx, err := a.begin(t.Context(), e.readCommitted())
	require.NoError(t, err)
	defer tx.rollback()
	require.NoError(t, other.LockTx(t.Context(), tx, "k"))
	c.pile(t, client)
	asked := asks(t.Context(), client, "j", "k", "l", "m")
	for _, i := range []int{0, 2, 3} {
		unlock(t, granted(t, soon, asked[i]))
	}
	select {
	case o := <-asked[1]:
		t.Errorf("granted beside a transaction that has it: %v", o.err)
	default:
	}
	require.NoError(t, tx.rollback())
	unlock(t, granted(t, soon, asked[1]))
}

func lostBatch(t *testing.T, e *env) {
	var lost atomic.Bool
	c, client := e.crowd(t, func(do func() error) error {
		err := do()
		if err == nil && lost.CompareAndSwap(false, true) {
			return driver.Fail(driver.ErrUnavailable, errors.New("the answer was lost"))
		}
		return err
	})
	defer close(c.late)
	names := []string{"a", "b", "c", "d"}
	var held []*dblock.Lock
	for !lost.Load() { // of the requests
		for _, l := range held {
			unlock(t, l)
		}
		held = nil
		c.pile(t, client)
		for _, one := range asks(t.Context(), client, names...) {
			held = append(held, granted(t, soon, one))
		}
	}
	for _, l := range held {
		live(t, l)
		if n := e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = ? AND token = ?", l.Name(),
			l.Token()); n != 1 {
			t.Errorf("%s: the lock is not the one in the database", l.Name())
		}
	}
	for lost.Store(false); !lost.Load(); { // of the releases
		c.pile(t, client)
		var all sync.WaitGroup
		for i, l := range held {
			all.Go(func() {
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("%s: %v", names[i], err)
				}
			})
		}
		all.Wait()
		for i, name := range names {
			e.free(t, name)
			held[i] = lock(t, client, name)
		}
	}
}

func leftBatch(t *testing.T, e *env) {
	sent, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c, client := e.crowd(t, func(do func() error) error {
		once.Do(func() { close(sent) })
		<-answer
		return do()
	})
	defer close(c.late)
	c.pile(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	names := []string{"a", "b", "c"}
	asked := asks(ctx, client, names...)
	select {
	case <-sent:
	case <-time.After(soon):
		t.Fatal("no batch was sent")
	}
	cancel()
	for _, one := range asked {
		o := within(t, soon, "Lock gives up", one)
		if o.err == nil { // it went alone, on a slow machine
			unlock(t, o.lock)
			continue
		}
		calledOff(t, o.err, context.Canceled)
	}
	time.Sleep(50 * time.Millisecond)
	assert.Equal(t, c.undone.Load(), 0, "attempts were undone before their batch was answered")
	close(answer) // the batch takes them all the same
	for _, name := range names {
		e.free(t, name)
		unlock(t, lock(t, client, name))
	}
}

// asks begins to lock names, each in a goroutine of its own.
func asks(ctx context.Context, c Client, names ...string) (asked []<-chan outcome) {
	for _, name := range names {
		asked = append(asked, locking(ctx, c, name))
	}
	return asked
}

func leaseOfBatch(t *testing.T, e *env) {
	const lease, late = 20 * time.Second, 300 * time.Millisecond
	var sent time.Time
	c, client := e.crowd(t, func(do func() error) error {
		sent = time.Now()
		defer time.Sleep(late) // until the answer comes
		return do()
	})
	defer close(c.late)
	for sent.IsZero() {
		c.pile(t, client)
		beside := locking(t.Context(), client, "beside") // a request alone is no batch
		l := granted(t, soon, locking(t.Context(), client, "leased", dblock.Lease(lease)))
		unlock(t, granted(t, soon, beside))
		if until := l.Until(); !sent.IsZero() && until.After(sent.Add(lease)) {
			t.Errorf("the lock ends %v after the lease", until.Sub(sent.Add(lease)))
		}
		unlock(t, l)
	}
}

func busyBatch(t *testing.T, e *env) {
	var busy atomic.Int64
	c, client := e.crowd(t, func(func() error) error { busy.Add(1); return driver.ErrBusy })
	defer close(c.late)
	for busy.Load() == 0 {
		c.pile(t, client)
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			all.Go(func() {
				l, err := client.TryLock(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				assert.NoError(t, l.Unlock(t.Context()))
			})
		}
		all.Wait()
	}
}

func leaveMany(t *testing.T, e *env) {
	a := e.app(t, 5)
	me, other := id(), id()
	for _, session := range []string{me, other} {
		require.NoError(t, a.Backend.OpenSession(brief(t), driver.Session{ID: session, Host: "h", TTL: longTTL}))
	}
	reader := func(session, attempt string) protocol.Request {
		return protocol.Request{Name: "n", Session: session, Host: "h", Thread: attempt, Attempt: attempt, Units: 1,
			Of: protocol.Readers, Patient: true}
	}
	writer := func(session, attempt string) protocol.Request {
		r := reader(session, attempt)
		r.Units, r.Of = 0, 0
		return r
	}
	if _, taken, err := drivertest.Take(brief(t), a.Backend, reader(other, "holds")); err != nil || !taken {
		t.Fatal(taken, err)
	}
	for _, r := range []protocol.Request{
		writer(me, "a1"), writer(me, "a2"), reader(other, "b1"), reader(me, "a3"), writer(other, "b2"),
		writer(me, "a4"), reader(me, "a5"),
	} {
		if _, outcome, err := drivertest.Join(brief(t), a.Backend, r); err != nil || outcome != protocol.Queued {
			t.Fatal(outcome, err)
		}
	}
	for _, step := range []struct {
		leave []string
		next  string
		left  int64
	}{
		{[]string{"none", "b1", "holds"}, "[]", 7}, // none of them waits in this session
		{[]string{"a1", "a4", "a4"}, "[]", 5},      // a2 waits in front
		{[]string{"a2", "none"}, "[b1 a3]", 2},     // up to b2
		{[]string{"a5"}, "[]", 1},
	} {
		var granted []string
		for _, attempt := range step.leave {
			next, err := drivertest.Undo(brief(t), a.Backend, me, "n", attempt)
			require.NoError(t, err)
			for _, n := range next {
				granted = append(granted, n.Attempt)
			}
		}
		if got := fmt.Sprint(granted); got != step.next {
			t.Errorf("%v left: %s was granted: want %s", step.leave, got, step.next)
		}
		if n := e.number(t, "SELECT waiters FROM dblock_locks WHERE name = 'n'"); n != step.left ||
			int64(e.waiting(t, "n")) != n {
			t.Errorf("%v left: %d waiters are counted, %d are there, want %d", step.leave, n, e.waiting(t, "n"),
				step.left)
		}
	}
}

// Broken by judging a name by its holder alone, as if it were free without one.
func batchPasses(t *testing.T, e *env) {
	a := e.app(t, 5)
	waited, _ := e.takeFor(t, a, "waited", takeover{})
	request := func(name string) protocol.Request {
		return protocol.Request{Name: name, Session: waited.Session, Host: "h", Thread: "t", Attempt: id(),
			Patient: true}
	}
	if _, outcome, err := drivertest.Join(brief(t), a.Backend, request("waited")); err != nil ||
		outcome != protocol.Queued {
		t.Fatal(outcome, err)
	}
	// As UnlockTx leaves it on MySQL, until it is handed on.
	e.exec(t, "UPDATE dblock_locks SET session_id = NULL, host = '', thread = '', attempt = '' WHERE name = 'waited'")
	rest := request("rests")
	rest.MinHold = time.Hour // no test sees its end
	g, taken, err := drivertest.Take(brief(t), a.Backend, rest)
	if err != nil || !taken {
		t.Fatal(taken, err)
	}
	if _, err := drivertest.Release(brief(t), a.Backend, protocol.Held{Name: "rests", Session: waited.Session,
		Token: g.Token}, false); err != nil {
		t.Fatal(err)
	}
	free, _ := e.takeFor(t, a, "free", takeover{})
	require.NoError(t, require.ErrOf(drivertest.Release(brief(t), a.Backend, free, false)))
	requests := []protocol.Request{request("free"), request("rests"), request("waited")}
	grants, _, err := drivertest.Batch(brief(t), a.Backend, requests, nil)
	if err != nil || len(grants) != 3 || grants[0].Token <= free.Token || grants[1].Token != 0 || grants[2].Token != 0 {
		t.Errorf("%+v, %v: want the first alone", grants, err)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL"), 1, "names are held")
}

func crowdLeaves(t *testing.T, e *env) {
	const waiters = 200
	a, b := e.client(t), e.client(t)
	held := lock(t, a, "n")
	ctx, cancel := context.WithCancel(t.Context())
	var asked []<-chan outcome
	for range waiters {
		asked = append(asked, locking(ctx, b, "n"))
	}
	e.queued(t, "n", waiters)
	stays := locking(t.Context(), b, "n")
	e.queued(t, "n", waiters+1)
	cancel()
	for _, one := range asked {
		calledOff(t, within(t, patience, "Lock gives up", one).err, context.Canceled)
	}
	e.queued(t, "n", 1)
	unlock(t, held)
	unlock(t, granted(t, soon, stays))
	e.free(t, "n")
}
