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

// Lock is a lock that a majority of the nodes holds, or held. It is safe for concurrent use.
type Lock struct {
	c      *Client
	name   string
	token  int64
	ctx    context.Context
	cancel context.CancelCauseFunc

	unlocking sync.Mutex // one Unlock at a time; protects outcome
	unlocked  bool
	outcome   error

	mu      sync.Mutex // protects what follows
	held    bool       // from begin to the end of ctx
	members []nodeLock // by node; nil: the node does not hold it
	watches []func() bool
	mender  *time.Timer
}

func newLock(ctx context.Context, c *Client, name string) *Lock {
	l := &Lock{c: c, name: name, members: make([]nodeLock, len(c.nodes)), watches: make([]func() bool, len(c.nodes))}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), l, true))
	return l
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Token returns the fencing token: it is above that of every earlier holder, whichever nodes that
// one had.
func (l *Lock) Token() int64 { return l.token }

// Context ends when the lock does: with cause dblock.ErrLost when fewer than a majority of the
// nodes hold it, before anybody else can; with dblock.ErrNotHeld at Unlock; with dblock.ErrClosed
// at Close. It carries the values of the context that Lock was called with, but does not end with
// it.
func (l *Lock) Context() context.Context { return l.ctx }

// Until is for how long the lock is valid if no node is reached any more from now on, by this
// machine's clock: each heartbeat of a node's client moves that node's part of it, and this is the
// last moment at which a majority is left. The margin for the drift of clocks is taken off already.
// The zero time where the lock is not held any more.
func (l *Lock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return time.Time{}
	}
	var ends []time.Time
	for _, m := range l.members {
		if m != nil && trusted(m) {
			ends = append(ends, m.Until())
		}
	}
	if len(ends) < l.c.majority {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[l.c.majority-1]
}

// Unlock gives the lock back on all nodes. It returns when a majority has it back, or after the
// nodes' time limit; the others are given it back in the background. With a ctx that has ended
// already, or is under the lock's own, it still does so.
//
// dblock.ErrLost if the lock was lost meanwhile. After any other error the lock counts as given up
// all the same, and the nodes' clients go on trying. A second call returns what the first did.
func (l *Lock) Unlock(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "unlock", Name: l.name, Err: fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)}
	}
	l.unlocking.Lock()
	defer l.unlocking.Unlock()
	if !l.unlocked {
		l.unlocked = true
		if err := l.leave(ctx); err != nil {
			l.outcome = err
		}
	}
	return l.outcome
}

func (l *Lock) leave(ctx context.Context) error {
	stop := ctx.Done()
	if ctx.Err() != nil || ctx.Value(l) != nil {
		stop = nil
	}
	answers := l.giveUp(fmt.Errorf("%w: unlocked", dblock.ErrNotHeld))
	if answers == nil {
		return &Error{Op: "unlock", Name: l.name, Err: context.Cause(l.ctx)}
	}
	e := &Error{Op: "unlock", Name: l.name}
	limit := time.NewTimer(l.c.limit)
	defer limit.Stop()
	released, lost := 0, 0
	for answered, late := 0, false; answered < cap(answers) && released < l.c.majority && !late; answered++ {
		select {
		case a := <-answers:
			switch {
			case a.err == nil:
				released++
				continue
			case errors.Is(a.err, dblock.ErrLost):
				lost++
			}
			e.Nodes = append(e.Nodes, l.c.node(a.node, a.err))
		case <-limit.C:
			late = true
		case <-stop:
			e.Err = context.Cause(ctx)
			return e
		}
	}
	switch {
	case released >= l.c.majority:
		return nil
	case cap(answers)-lost < l.c.majority:
		e.Err = dblock.ErrLost
	default:
		e.Err = fmt.Errorf("%w: %d of %d nodes have it back; the others will, at the latest when the TTL is over", dblock.ErrUnavailable, released, len(l.c.nodes))
	}
	return e
}

// begin makes the grants of a round the lock, if a majority of the nodes still holds them and the
// client is not closed.
func (l *Lock) begin(token int64, grants []nodeLock) bool {
	l.mu.Lock() // before enlist, so that Close finds it held
	defer l.mu.Unlock()
	if !l.c.enlist(l) {
		return false
	}
	l.token, l.held = token, true
	for i, m := range grants {
		if m != nil {
			l.admit(i, m)
		}
	}
	l.mend()
	return true
}

// join adds a node that was locked after the others. It gives it back, and returns false, where
// there is no lock any more: a loss that left has not been told of yet is one all the same, and
// another may have had the lock since.
func (l *Lock) join(i int, m nodeLock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held || l.standing() < l.c.majority {
		l.c.giveBack(m)
		return false
	}
	l.admit(i, m)
	return true
}

// admit MUST be called with mu locked.
func (l *Lock) admit(i int, m nodeLock) {
	if l.members[i] != nil { // the node would not have granted it again if it had not lost that one
		l.watches[i]()
		l.c.giveBack(l.members[i])
	}
	l.members[i] = m
	l.watches[i] = context.AfterFunc(m.Context(), func() { l.left(i, m) })
}

// standing is how many nodes still hold the lock. MUST be called with mu locked.
func (l *Lock) standing() (n int) {
	for _, m := range l.members {
		if m != nil && trusted(m) {
			n++
		}
	}
	return n
}

// trusted asks the clock as well: after a machine stood still contexts end a moment later.
func trusted(l nodeLock) bool { return l.Context().Err() == nil && time.Now().Before(l.Until()) }

// left takes a node off that has lost the lock. With the majority goes the lock.
func (l *Lock) left(i int, m nodeLock) {
	l.mu.Lock()
	if !l.held || l.members[i] != m {
		l.mu.Unlock()
		return
	}
	l.members[i] = nil
	n := l.standing()
	l.mend()
	l.c.giveBack(m) // it may be lost here and held there
	l.mu.Unlock()
	cause := context.Cause(m.Context())
	l.c.log.Warn("quorum: a node has lost the lock", "name", l.name, "node", l.c.node(i, cause).place(), "left", n, "because", cause)
	if n < l.c.majority {
		l.giveUp(fmt.Errorf("quorum: %q: %w: %d of %d nodes hold it: the latest to lose it: %w", l.name, dblock.ErrLost, n, len(l.c.nodes), l.c.node(i, cause)))
	}
}

// giveUp ends the lock, and gives it back on every node. Each answers once; the answers are nil
// where the lock had ended.
func (l *Lock) giveUp(cause error) <-chan answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return nil
	}
	l.held = false
	l.cancel(cause)
	if l.mender != nil {
		l.mender.Stop()
	}
	members := 0
	for i, m := range l.members {
		if m != nil {
			l.watches[i]()
			members++
		}
	}
	answers := make(chan answer, members)
	for i, m := range l.members {
		if m != nil {
			l.c.calls.Go(func() { answers <- answer{node: i, err: l.c.release(m)} })
		}
	}
	l.c.delist(l)
	return answers
}
