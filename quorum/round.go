package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// round is one try to lock a majority of the nodes. One goroutine, run, has its fields, and goes on
// after the outcome is known until the last node has answered.
type round struct {
	c        *Client
	lock     *Lock
	caller   context.Context
	asking   context.Context // of what the nodes are asked: it ends with the time limit, or when the round has failed
	dismiss  context.CancelFunc
	answers  chan answer
	pending  int
	grants   []nodeLock // by node; nil: none, or lost since
	failures []error    // by node
	floor    int64      // the highest floor of the nodes that granted
	token    int64      // 0: a majority has not granted
	counts   []bool     // by node: all that it knew when it granted is below the token, and it has been told that
	spare    []bool     // by node: its grant came after the token, and it knows more
	late     []bool     // by node: it did not answer the last request in time, and has not answered this one
	began    time.Time
	took     time.Duration // until the latest answer before the outcome
	decided  bool
	outcome  chan bool // receives once: whether the lock is held
}

// answer is what one node said, to being asked for the lock or to being told the token.
type answer struct {
	node  int
	told  bool
	lock  nodeLock
	floor int64
	err   error
}

// round locks a majority of the nodes and tells it the token, or leaves no node locked and returns
// what each node said, and how long those took that answered.
func (c *Client) round(ctx context.Context, name string) (l *Lock, took time.Duration, failures []error) {
	n := len(c.nodes)
	r := &round{
		c: c, lock: newLock(ctx, c, name), caller: ctx, answers: make(chan answer, 2*n), grants: make([]nodeLock, n),
		failures: make([]error, n), counts: make([]bool, n), spare: make([]bool, n), late: make([]bool, n), outcome: make(chan bool, 1),
		began: time.Now(),
	}
	// Without the caller's values: a node's client would take the caller for the owner of a lock
	// that it has on that node alone.
	r.asking, r.dismiss = context.WithTimeoutCause(context.Background(), c.limit, errLate)
	unhook := context.AfterFunc(ctx, r.dismiss)
	for i := range c.nodes {
		r.ask(i, name)
	}
	c.calls.Go(r.run)
	held := <-r.outcome
	unhook()
	if held {
		return r.lock, 0, nil
	}
	return nil, r.took, r.failures
}

// ask sends one node the request, and then asks it for its memory: in this order, since only what
// it remembers after the grant says that the grant was made with it. A node that was late is asked
// by one round at a time, until the time limit whatever becomes of the round: that answer, and no
// other, says whether the node is late still.
func (r *round) ask(i int, name string) {
	r.pending++
	late, err := r.c.suspect(i)
	if err != nil {
		r.answers <- answer{node: i, err: err}
		return
	}
	r.late[i] = late
	r.c.calls.Go(func() {
		asking := r.asking
		if late {
			own, cancel := context.WithTimeoutCause(context.Background(), r.c.limit, errLate)
			defer cancel()
			defer r.c.asked(i)
			asking = own
		}
		l, floor, err := r.c.grant(asking, i, name)
		r.answers <- answer{node: i, lock: l, floor: floor, err: err}
	})
}

// tell writes the token to a node.
func (r *round) tell(i int) {
	l := r.grants[i]
	if l.Token() == r.token {
		r.counts[i] = true
		return
	}
	r.pending++
	r.c.calls.Go(func() {
		_, err := l.Raise(r.asking, r.token)
		r.answers <- answer{node: i, told: true, lock: l, err: r.excuse(err)}
	})
}

// excuse says why a node failed, where that was not the node.
func (r *round) excuse(err error) error { return excuse(r.asking, err) }

func excuse(asking context.Context, err error) error {
	if err == nil || asking.Err() == nil || permanent(err) {
		return err
	}
	if errors.Is(context.Cause(asking), errLate) {
		return fmt.Errorf("%w (%v)", errLate, err) // not err itself: its kind would be that somebody holds the lock
	}
	return errDismissed
}

// run has the answers come in until there are no more. The outcome does not wait for those that are
// late.
func (r *round) run() {
	defer r.dismiss()
	late := r.asking.Done()
	for r.pending > 0 {
		var a answer
		select {
		case a = <-r.answers:
		case <-late:
			late = nil
			r.expire()
			continue
		}
		r.pending--
		r.late[a.node] = false
		switch {
		case r.decided:
			r.straggle(a)
			continue
		}
		r.took = time.Since(r.began)
		switch {
		case a.err != nil && a.told:
			r.failures[a.node] = a.err
			r.c.giveBack(a.lock)
			r.grants[a.node] = nil
		case a.err != nil:
			r.failures[a.node] = a.err
		case a.told:
			r.counts[a.node] = r.grants[a.node] != nil // or it was lost meanwhile
		default:
			r.granted(a)
		}
		r.judge()
	}
}

// expire ends the round if it is not decided. A node that is slow to see that it was called off
// does not hold it up.
func (r *round) expire() {
	if r.decided {
		return
	}
	for i := range r.failures {
		if r.failures[i] == nil && !r.counts[i] && !r.spare[i] && (r.grants[i] == nil || r.token != 0) {
			r.failures[i] = r.excuse(errors.New("it has not answered"))
		}
	}
	r.fail()
}

// granted counts a grant. With that of a majority the token is fixed. A later grant with a higher
// token, or of a node with a higher floor, helps to keep the lock, but does not count for having
// it: a whole holder may have come and gone on that node.
func (r *round) granted(a answer) {
	r.grants[a.node] = a.lock
	switch {
	case r.token != 0 && (a.lock.Token() > r.token || a.floor >= r.token):
		r.spare[a.node] = true
		return
	case r.token != 0:
		r.tell(a.node)
		return
	}
	r.floor = max(r.floor, a.floor)
	var n int
	token := r.floor + 1
	for _, l := range r.grants {
		if l != nil {
			n++
			token = max(token, l.Token())
		}
	}
	if n < r.c.majority {
		return
	}
	r.token = token
	for i, l := range r.grants {
		if l != nil {
			r.tell(i)
		}
	}
}

// judge decides as soon as there is something to decide by. Where another client is in the way, the
// round does not wait for a node that was late before: it would keep from the other client what it
// has itself, and both would stand still.
func (r *round) judge() {
	refused := slices.ContainsFunc(r.failures, func(err error) bool { return errors.Is(err, dblock.ErrNotAcquired) })
	counted, possible := 0, 0
	for i, l := range r.grants {
		if l != nil && !trusted(l) { // it cannot count again: its token went into ours
			r.grants[i], r.counts[i], r.failures[i] = nil, false, errLostAgain
			r.c.giveBack(l)
			continue
		}
		if r.counts[i] {
			counted++
		}
		if r.failures[i] == nil && !r.spare[i] && !(refused && r.late[i]) {
			possible++
		}
	}
	switch {
	case counted >= r.c.majority && r.lock.begin(r.token, r.grants):
		r.decided = true
		r.outcome <- true
	case counted >= r.c.majority, possible < r.c.majority:
		r.fail()
	}
}

// fail gives everything back, and says so when that is done, or cannot be waited for.
func (r *round) fail() {
	r.decided = true
	for i, late := range r.late {
		if late && r.failures[i] == nil {
			r.failures[i] = errLateBefore
		}
	}
	r.dismiss()
	var releases sync.WaitGroup
	for _, l := range r.grants {
		if l != nil {
			releases.Go(func() { _ = r.c.release(l) })
		}
	}
	released := make(chan struct{})
	r.c.calls.Go(func() {
		releases.Wait()
		close(released)
	})
	r.c.calls.Go(func() {
		limit := time.NewTimer(r.c.limit)
		defer limit.Stop()
		select {
		case <-released:
		case <-r.caller.Done():
		case <-limit.C:
		}
		r.outcome <- false
	})
}

// straggle is what becomes of an answer that comes after the outcome. lock.join gives it back where
// there is no lock. That another node knows the token, if it can be had, run waits for: asking ends
// with it.
func (r *round) straggle(a answer) {
	if a.told || a.err != nil {
		return
	}
	if r.lock.join(a.node, a.lock) && a.lock.Token() < r.lock.token {
		r.grants[a.node] = a.lock
		r.tell(a.node)
	}
}

// grant locks one node, if it counts.
func (c *Client) grant(ctx context.Context, i int, name string) (l nodeLock, floor int64, err error) {
	if err := c.resting(i); err != nil {
		return nil, 0, err
	}
	watch := context.AfterFunc(ctx, func() { c.callOff(i, errors.Is(context.Cause(ctx), errLate)) })
	defer func() { c.returned(i, watch(), err) }()
	l, err = c.nodes[i].node.TryLock(ctx, name)
	if err != nil {
		return nil, 0, excuse(ctx, err)
	}
	floor, err = c.trust(ctx, i)
	if err != nil {
		_ = c.release(l)
		return nil, 0, excuse(ctx, err)
	}
	return l, floor, nil
}

// giveBack is release without waiting for it.
func (c *Client) giveBack(l nodeLock) {
	c.calls.Go(func() { _ = c.release(l) })
}
