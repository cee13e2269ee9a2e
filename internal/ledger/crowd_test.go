package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// crowd is a client with one session, whose database queues every request unless join says
// otherwise.
type crowd struct {
	*Ledger
	t      *testing.T
	client *client
	in     *store.Session
	join   func(j protocol.Join) (protocol.Result, error)
	detach func(d protocol.Detachment) error

	mu        sync.Mutex // protects what follows
	joined    []protocol.Join
	abandoned []string
}

// asleep is the keeper of a session in which nothing happens.
type asleep struct{ store.Keeper }

func (asleep) Opened(*session.Session) (lost func()) { return func() {} }

func (asleep) Reconcile(context.Context, *session.Session, session.List) error { return nil }

func (asleep) Holding() bool { return false }
func (asleep) Unused() bool  { return false }

func (asleep) First()                      {}
func (asleep) Stray(string)                {}
func (asleep) Own(string)                  {}
func (asleep) Lost(*store.Session)         {}
func (asleep) Beaten(time.Duration, error) {}
func (asleep) Listener(bool, error)        {}

func newCrowd(t *testing.T) *crowd {
	began := time.Now()
	now := clock.Func(func() time.Duration { return time.Since(began) })
	w := &crowd{t: t, Ledger: newLedger(t, now)}
	config := store.Config{TTL: ttl, Clock: now, Log: w.config.Log}
	w.config.Store = store.New(fakedb.Hooked(memory.NewLink(memory.NewDB()), w.hook), config)
	w.client = w.config.Client.(*client)
	w.client.gaveUp = func(queued bool, cause error) error { return fmt.Errorf("queued %v: %w", queued, cause) }
	sessions := store.NewSessions(w.config.Store, asleep{})
	var err error
	w.in, err = sessions.Open(t.Context(), true)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.config.Store.Stop(nil)
		w.config.Store.Wait()
		w.in.Stop(contract.ErrClosed)
		w.config.Store.Abort()
		sessions.Wait()
	})
	return w
}

// statements returns the number of requests that were sent.
func (w *crowd) statements() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.joined)
}

// hook answers the statements about names by the script.
func (w *crowd) hook(ctx context.Context, c *fakedb.Call) (err error) {
	switch {
	case c.Method == "Read":
		<-ctx.Done()
		return ctx.Err()
	case c.Method != "Run":
		return c.Do(ctx)
	}
	switch op := c.Op().(type) {
	case protocol.Sequence: // of requests that wait, and of those that are given back
		result := protocol.Result{Each: make([]protocol.Result, len(op))}
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, one := range op {
			if join, joins := one.(protocol.Join); joins {
				w.joined = append(w.joined, join)
				result.Each[i].Outcome = protocol.Queued
			} else {
				w.abandoned = append(w.abandoned, one.(protocol.Removal).Attempt)
			}
		}
		c.Results = []protocol.Result{result}
	case protocol.Join:
		w.mu.Lock()
		w.joined = append(w.joined, op)
		w.mu.Unlock()
		c.Outcome(protocol.Queued)
		if w.join != nil {
			var r protocol.Result
			r, err = w.join(op)
			c.Results = []protocol.Result{r}
		}
	case protocol.Detach:
		c.Outcome(protocol.Done)
		err = w.detach(op.Member)
	case protocol.Removal:
		w.mu.Lock()
		w.abandoned = append(w.abandoned, op.Attempt)
		w.mu.Unlock()
		c.Outcome(protocol.Done)
	}
	return err
}

var queued = protocol.Result{Outcome: protocol.Queued}

var errRefused = driver.Refused(errors.New("refused"))

// asker is a caller of Join.
type asker struct {
	attempt string
	claim   *Claim
	err     error
	cancel  context.CancelFunc
	done    bool
}

// ask has a caller ask for a name, and returns once nothing moves any more.
func (w *crowd) ask(r protocol.Request) *asker {
	c := w.begin(r)
	synctest.Wait()
	return c
}

func (w *crowd) begin(r protocol.Request) *asker {
	ctx, cancel := context.WithCancel(w.t.Context())
	r.Name, r.Session, r.Attempt = "n", w.in.ID, deadlock.NewAttempt("")
	r.Host, r.Thread = "host of "+r.Attempt, "thread of "+r.Attempt
	c := &asker{attempt: r.Attempt, cancel: cancel}
	c.claim = w.Request(w.in, &r, Owner{Host: r.Host, Thread: r.Thread})
	_ = w.config.Store.Begin()
	go func() {
		defer w.config.Store.Done()
		defer cancel()
		if c.err = w.Join(ctx, c.claim, false); c.err == nil && !w.Hold(ctx, c.claim) {
			w.t.Error("it came too late")
		}
		c.done = true
	}()
	return c
}

// together has callers wait in one place, and returns them with the attempt of their grant.
func (w *crowd) together(n int) (callers []*asker, attempt string) {
	w.t.Helper()
	answer := make(chan struct{})
	before := w.join
	w.join = func(protocol.Join) (protocol.Result, error) {
		<-answer
		return queued, nil
	}
	first := w.ask(protocol.Request{}) // while its statement is in flight, the others gather
	for range n {
		callers = append(callers, w.ask(protocol.Request{}))
	}
	first.cancel()
	synctest.Wait()
	w.join = before
	close(answer)
	synctest.Wait()
	last := w.joined[len(w.joined)-1]
	if last.Members != n || last.Attempt != callers[0].attempt {
		w.t.Fatalf("%+v was sent for %d claims", last, n)
	}
	return callers, last.Attempt
}

// give has the database give the lock to an attempt, with a token for each claim.
func (w *crowd) give(attempt string, first, last int64) {
	w.deliver(attempt, first, last)
	synctest.Wait()
}

func (w *crowd) deliver(attempt string, first, last int64) {
	g := protocol.Grant{First: first, Token: last}
	w.in.Waiters().Deliver([]protocol.Handoff{{Session: w.in.ID, Attempt: attempt, Grant: g}}, 42)
}

// has fails the test unless this caller has the lock, with a token; 0: it waits.
func (w *crowd) has(c *asker, token int64) {
	w.t.Helper()
	synctest.Wait()
	switch {
	case token == 0 && c.done:
		w.t.Errorf("a caller that waits was told %v", c.err)
	case token != 0 && (!w.Relies(c.claim) || c.claim.Token() != token):
		w.t.Errorf("a caller has no lock with token %d: %+v", token, c)
	}
}

// pass has a caller pass the lock on, and reports whether it went to the next.
func (w *crowd) pass(c *asker) bool {
	w.Drop(c.claim, contract.ErrUnlocked)
	passed, err := w.Pass(w.t.Context(), c.claim)
	assert.NoError(w.t, err)
	synctest.Wait()
	return passed
}

// gone has the lock of a caller released in the database.
func (w *crowd) gone(c *asker) { w.Finish(c.claim.Grant, false) }

// is fails the test unless a caller was told an error.
func (w *crowd) is(c *asker, want error) {
	w.t.Helper()
	synctest.Wait()
	assert.ErrorIs(w.t, c.err, want, "a caller was told")
}

func (w *crowd) state(g *Grant) GrantState {
	w.Ledger.mu.Lock()
	defer w.Ledger.mu.Unlock()
	return g.state
}

func inBubble(t *testing.T, test func(t *testing.T, w *crowd)) {
	synctest.Test(t, func(t *testing.T) { test(t, newCrowd(t)) })
}
