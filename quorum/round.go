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

// round is one try to lock a majority of the nodes. Its fields belong to one goroutine, run, which
// goes on after the outcome until the last node has answered.
type round struct {
	c        *Client
	lock     *Lock
	caller   context.Context
	asking   context.Context // for the requests to the nodes: ends with the time limit, or when the round has failed
	cancel   context.CancelFunc
	answers  chan answer
	pending  int
	grants   []nodeLock // by node; nil: no grant, or lost since
	failures []error    // by node
	floor    int64      // the highest floor of the nodes that granted
	token    int64      // 0: no majority has granted yet
	counts   []bool     // by node: no higher token was known there when it granted, and the token is written
	spare    []bool     // by node: it granted after the token was fixed, and knew a higher one
	late     []bool     // by node: it was late with the last request, and has not answered this one
	began    time.Time
	took     time.Duration // until the latest answer before the outcome
	decided  bool
	outcome  chan bool // receives once: whether the lock is held
}

// answer is one node's answer to the request for the lock, or to the write of the token.
type answer struct {
	node    int
	written bool
	lock    nodeLock
	floor   int64
	err     error
}

// round locks a majority of the nodes and writes the token to it. Otherwise it leaves no node
// locked and returns the error of each node, and the time until the latest answer.
func (c *Client) round(ctx context.Context, name string) (l *Lock, took time.Duration, failures []error) {
	n := len(c.nodes)
	r := &round{
		c: c, lock: newLock(ctx, c, name), caller: ctx, answers: make(chan answer, 2*n), grants: make([]nodeLock, n),
		failures: make([]error, n), counts: make([]bool, n), spare: make([]bool, n), late: make([]bool, n),
		outcome: make(chan bool, 1),
		began:   time.Now(),
	}
	// Without the caller's values: with them, a lock that the caller has on one node alone would
	// make it reentrant there.
	r.asking, r.cancel = context.WithTimeoutCause(context.Background(), c.limit, errLate)
	unhook := context.AfterFunc(ctx, r.cancel)
	for i := range c.nodes {
		r.ask(i, name)
	}
	c.calls.Go(r.collect)
	held := <-r.outcome
	unhook()
	if held {
		return r.lock, 0, nil
	}
	return nil, r.took, r.failures
}

// ask requests the lock of one node, and then reads its memory. The order matters: only a memory
// that is read after the grant is the one with which the grant was made. A node that was late is
// asked by one round at a time, and until the time limit even if the round fails before: only that
// answer tells whether the node is still late.
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

// write writes the token to a node.
func (r *round) write(i int) {
	l := r.grants[i]
	if l.Token() == r.token {
		r.counts[i] = true
		return
	}
	r.pending++
	r.c.calls.Go(func() {
		_, err := l.Raise(r.asking, r.token)
		r.answers <- answer{node: i, written: true, lock: l, err: r.excuse(err)}
	})
}

// excuse replaces the error of a node if the node is not the reason.
func (r *round) excuse(err error) error { return excuse(r.asking, err) }

func excuse(asking context.Context, err error) error {
	if err == nil || asking.Err() == nil || permanent(err) {
		return err
	}
	if errors.Is(context.Cause(asking), errLate) {
		return fmt.Errorf("%w (%v)", errLate, err) // not err itself, whose kind would say that there is another holder
	}
	return errCalledOff
}

// collect collects the answers until the last. The outcome does not wait for late ones.
func (r *round) collect() {
	defer r.cancel()
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
			r.answeredLate(a)
			continue
		}
		r.took = time.Since(r.began)
		switch {
		case a.err != nil && a.written:
			r.failures[a.node] = a.err
			r.c.releaseLater(a.lock)
			r.grants[a.node] = nil
		case a.err != nil:
			r.failures[a.node] = a.err
		case a.written:
			r.counts[a.node] = r.grants[a.node] != nil // nil: lost meanwhile
		default:
			r.granted(a)
		}
		r.decide()
	}
}

// expire fails the round if it is not decided. A node that is slow to notice the cancelled request
// does not delay the round.
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

// granted counts a grant. The grant that completes a majority fixes the token. A later grant with a
// higher token, or of a node with a higher floor, helps to keep the lock but does not count for
// acquiring it: another holder may have come and gone on that node.
func (r *round) granted(a answer) {
	r.grants[a.node] = a.lock
	switch {
	case r.token != 0 && (a.lock.Token() > r.token || a.floor >= r.token):
		r.spare[a.node] = true
		return
	case r.token != 0:
		r.write(a.node)
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
			r.write(i)
		}
	}
}

// decide decides the round as soon as possible. Where another client is in the way, the round does
// not wait for a node that was late before: it would keep its grants from the other client
// meanwhile, and both would be blocked.
func (r *round) decide() {
	refused := slices.ContainsFunc(r.failures, func(err error) bool { return errors.Is(err, dblock.ErrNotAcquired) })
	counted, possible := 0, 0
	for i, l := range r.grants {
		if l != nil && !trusted(l) { // the node cannot count again, since its token went into T
			r.grants[i], r.counts[i], r.failures[i] = nil, false, errLostAgain
			r.c.releaseLater(l)
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

// fail releases all grants, and reports the outcome when they are released or the time limit has
// passed.
func (r *round) fail() {
	r.decided = true
	for i, late := range r.late {
		if late && r.failures[i] == nil {
			r.failures[i] = errLateBefore
		}
	}
	r.cancel()
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

// answeredLate handles an answer after the outcome. lock.join releases the grant if there is no
// lock. run waits for the write of the token to this node, because asking ends with run.
func (r *round) answeredLate(a answer) {
	if a.written || a.err != nil {
		return
	}
	if r.lock.join(a.node, a.lock) && a.lock.Token() < r.lock.token {
		r.grants[a.node] = a.lock
		r.write(a.node)
	}
}

// grant locks one node, if it counts.
func (c *Client) grant(ctx context.Context, i int, name string) (l nodeLock, floor int64, err error) {
	if err := c.excluded(i); err != nil {
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

// releaseLater releases a node's lock in the background.
func (c *Client) releaseLater(l nodeLock) {
	c.calls.Go(func() { _ = c.release(l) })
}
