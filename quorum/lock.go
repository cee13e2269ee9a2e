package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
)

// Lock is a lock that is or was held on a majority of the nodes. It is safe for concurrent use.
type Lock struct {
	c      *Client
	name   string
	token  int64
	ctx    context.Context
	cancel context.CancelCauseFunc

	unlocking sync.Mutex // one Unlock at a time; protects outcome
	unlocked  bool
	outcome   error

	mu          sync.Mutex // protects the fields below
	held        bool       // from begin to the end of ctx
	members     []nodeLock // by node; nil: not held there
	watches     []func() bool
	repairTimer *time.Timer
}

func newLock(ctx context.Context, c *Client, name string) *Lock {
	l := &Lock{c: c, name: name, members: make([]nodeLock, len(c.nodes)), watches: make([]func() bool, len(c.nodes))}
	inner, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), l, true))
	l.ctx, l.cancel = contract.Asking(inner, l.lapse), cancel
	return l
}

// lapse ends the lock if fewer than a majority of the nodes hold it, by the clock now.
func (l *Lock) lapse() {
	l.mu.Lock()
	over := l.held && l.alive() < l.c.majority
	members := slices.Clone(l.members)
	l.mu.Unlock()
	for i, m := range members {
		if over && m != nil && !trusted(m) {
			l.left(i, m)
		}
	}
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Token returns the fencing token. It is above that of every earlier holder, on any of the nodes.
func (l *Lock) Token() int64 { return l.token }

// Context ends with the lock: with cause dblock.ErrLost when fewer than a majority of the nodes
// hold it, before another client can hold it; with dblock.ErrNotHeld at Unlock; with
// dblock.ErrClosed at Close. It has the values of the context that Lock was called with, but does
// not end with it.
func (l *Lock) Context() context.Context { return l.ctx }

// Until returns until when the lock is valid if no node is reached from now on, by this machine's
// clock. Each heartbeat of a node's client moves that node's deadline, and Until is the last moment
// at which a majority is left. The margin for clock drift is subtracted already. The zero time for
// a lock that is not held any more.
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

// Unlock releases the lock on all nodes. It returns when a majority has released it, or after the
// nodes' time limit. On the other nodes the release goes on in the background. Unlock works even if
// ctx has ended, or is under the lock's own context.
//
// dblock.ErrLost if the lock was lost before. After any other error the lock counts as released,
// and the nodes' clients keep retrying. A second call returns the result of the first.
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
	answers := l.end(fmt.Errorf("%w: unlocked", dblock.ErrNotHeld))
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
		e.Err = fmt.Errorf("%w: %d of %d nodes have released it; the others will, at the latest after "+
			"their TTL", dblock.ErrUnavailable, released, len(l.c.nodes))
	}
	return e
}

// begin turns the grants of a round into the lock, if a majority of them is still held and the
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
	l.repair()
	return true
}

// join adds a node that was locked after the others. If the lock is lost, join releases the node
// and returns false. join checks that itself, because left may not have noticed a loss yet, and
// another client may have held the lock since.
func (l *Lock) join(i int, m nodeLock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held || l.alive() < l.c.majority {
		l.c.releaseLater(m)
		return false
	}
	l.admit(i, m)
	return true
}

// admit adds a node to those that hold the lock. MUST be called with mu locked.
func (l *Lock) admit(i int, m nodeLock) {
	if l.members[i] != nil { // the node has granted the lock again, so it has lost the earlier grant
		l.watches[i]()
		l.c.releaseLater(l.members[i])
	}
	l.members[i] = m
	l.watches[i] = context.AfterFunc(m.Context(), func() { l.left(i, m) })
}

// alive returns how many nodes still hold the lock. MUST be called with mu locked.
func (l *Lock) alive() (n int) {
	for _, m := range l.members {
		if m != nil && trusted(m) {
			n++
		}
	}
	return n
}

// trusted reports whether a node's lock is held. It reads the clock as well: after the machine was
// suspended, contexts end a moment late.
func trusted(l nodeLock) bool { return l.Context().Err() == nil && time.Now().Before(l.Until()) }

// left removes a node that has lost the lock. Without a majority the lock is lost.
func (l *Lock) left(i int, m nodeLock) {
	l.mu.Lock()
	if !l.held || l.members[i] != m {
		l.mu.Unlock()
		return
	}
	l.members[i] = nil
	n := l.alive()
	l.repair()
	l.c.releaseLater(m) // the node may still hold the lock
	l.mu.Unlock()
	cause := context.Cause(m.Context())
	if n < l.c.majority {
		l.end(fmt.Errorf("quorum: %q: %w: %d of %d nodes hold it: the latest to lose it: %w", l.name, dblock.ErrLost, n,
			len(l.c.nodes), l.c.node(i, cause)))
	}
	l.c.log.Warn("quorum: a node has lost the lock", "name", l.name, "node", l.c.node(i, cause).place(), "left", n,
		"because", cause)
}

// end ends the lock, and releases it on every node. Each node answers once. It returns nil if the
// lock had ended before.
func (l *Lock) end(cause error) <-chan answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return nil
	}
	l.held = false
	l.cancel(cause)
	if l.repairTimer != nil {
		l.repairTimer.Stop()
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
