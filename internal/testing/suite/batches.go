package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

var batches = inPlaces(own{
	{"what came of a batch whose answer was lost is found out and given back", lostBatch},
	{"a fixed lease that a batch grants counts from before the batch was sent", leaseOfBatch},
	{"a batch in which one would have to wait fails for none", busyBatch},
	{"two hundred waiters of one name that give up leave nothing", crowdLeaves},
	{"who gives up while a batch is under way gets nothing and leaves nothing", leftBatch},
})

// crowded is a database that answers single requests for some names late, so that other requests
// pile up behind them.
type crowded struct {
	late  chan struct{} // closed when the late ones are answered
	batch func(do func() error) error

	singles, batches, undone atomic.Int64
}

func (c *crowded) hook(ctx context.Context, call *fakedb.Call) error {
	if len(call.Ops) > 1 {
		c.batches.Add(1)
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
	answer := make(chan struct{})
	c, client := e.crowd(t, func(do func() error) error {
		<-answer
		return do()
	})
	defer close(c.late)
	ctx, cancel := context.WithCancel(t.Context())
	names := []string{"a", "b", "c"}
	var asked []<-chan outcome
	waits := func(one <-chan outcome) bool { return len(one) == 0 }
	for c.batches.Load() == 0 {
		for _, one := range asked { // each went alone, on a slow machine
			unlock(t, granted(t, soon, one))
		}
		c.pile(t, client)
		asked = asks(ctx, client, names...)
		eventually(t, patience, "the requests are sent, together or each alone", func() bool {
			return c.batches.Load() > 0 || !slices.ContainsFunc(asked, waits)
		})
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
	stays := locking(t.Context(), e.client(t), "n")
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
