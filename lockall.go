package dblock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// maxTogether is how many names one statement takes or gives back.
const maxTogether = 1000

// Locks are several locks that are held as one. They are safe for concurrent use.
type Locks[TX any] struct {
	client *Client[TX]
	locks  []*Lock[TX] // in the order of their names
	ctx    context.Context
	cancel context.CancelCauseFunc

	unwatch []func() bool // of the locks' contexts, which may go on

	mu       sync.Mutex // one Unlock at a time
	unlocked bool
	outcome  error
}

// LockAll waits until it holds all names, or until ctx ends: then it holds none. Whatever the order
// in which they are given, they are taken in the order of their bytes, so that no two LockAlls wait
// for each other; names that are given twice are one. Names that are free are taken together, in
// one transaction (on PostgreSQL in one round trip, for up to 1,000 names). For one that is not, it
// stands in the queue as anybody else, and holds those before it meanwhile.
//
// Options are those of Lock, for all names; For gives one of them others. All are held by the same
// owner.
//
// Errors are those of Lock, and name the lock that failed. ErrInvalidOption without a name.
// ErrUnsupported on locks without tables.
func (c *Client[TX]) LockAll(ctx context.Context, names []string, options ...LockOption) (*Locks[TX], error) {
	return c.acquireAll(ctx, "lockall", names, options, true)
}

// TryLockAll takes all names if every one of them is free, and otherwise none: ErrNotAcquired,
// which names one that is not, at once.
func (c *Client[TX]) TryLockAll(ctx context.Context, names []string, options ...LockOption) (*Locks[TX], error) {
	return c.acquireAll(ctx, "trylockall", names, options, false)
}

func (c *Client[TX]) acquireAll(ctx context.Context, op string, names []string, options []LockOption, wait bool) (*Locks[TX], error) {
	if ctx == nil {
		return nil, &LockError{op, "", fmt.Errorf("%w: the context is nil", ErrInvalidOption)}
	}
	requests, chosen, err := c.requests(op, names, options, wait)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &LockError{op, requests[0].Name, context.Cause(ctx)}
	}
	if err := c.begin(); err != nil {
		return nil, &LockError{op, requests[0].Name, err}
	}
	defer c.calls.Done()
	o := ownerOf(ctx, c, c.config.host, chosen)
	for {
		all, failed, err := c.gather(ctx, requests, o, wait)
		switch {
		case err == nil:
			return all, nil
		case ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable):
			err = c.unseen(ctx, err)
		case errors.Is(err, errLostMeanwhile) && c.background.Err() != nil:
			err = ErrClosed
		case errors.Is(err, errLostMeanwhile) && wait: // one of those that it had: from the beginning
			pause(ctx, 10*time.Millisecond)
			continue
		case errors.Is(err, errLostMeanwhile):
			err = notAcquired(driver.State{}, err)
		}
		return nil, &LockError{op, failed, err}
	}
}

// gather takes all names in their order. Where it fails it gives back what it has, and tells of
// which name it was.
func (c *Client[TX]) gather(ctx context.Context, requests []driver.Request, o owner, wait bool) (_ *Locks[TX], failed string, err error) {
	all := &Locks[TX]{client: c}
	all.ctx, all.cancel = context.WithCancelCause(context.WithValue(o.in(context.WithoutCancel(ctx), c), all, true))
	within, cancel := context.WithCancelCause(ctx) // ends with the first that is lost
	defer cancel(nil)
	defer context.AfterFunc(all.ctx, func() { cancel(errLostMeanwhile) })()
	for len(requests) > 0 && err == nil {
		failed = requests[0].Name
		var taken int
		if !o.explicit { // an owner that comes back is let in name by name
			taken, err = c.takeAll(within, all, requests, o)
		}
		if err == nil && taken < len(requests) {
			failed = requests[taken].Name
			var h *hold
			if h, err = c.obtain(within, requests[taken], o, wait); err == nil {
				all.add(&Lock[TX]{client: c, hold: h})
				taken++
			}
		}
		requests = requests[taken:]
	}
	for _, l := range all.locks { // the context says so a moment later
		if cause := context.Cause(l.Context()); err == nil && cause != nil {
			failed, err = l.Name(), cause
		}
	}
	if err == nil {
		return all, "", nil
	}
	if ctx.Err() == nil && all.ctx.Err() != nil || errors.Is(err, ErrLost) {
		err = errLostMeanwhile
	}
	if ctx.Err() == nil {
		_ = all.Unlock(ctx) // what it cannot give back, the client goes on to
		return nil, failed, err
	}
	c.calls.Go(func() { _ = all.Unlock(ctx) }) // ctx has ended: whoever called waits no longer
	return nil, failed, err
}

var errLostMeanwhile = errors.New("one of the locks was lost while others were waited for")

// add is not safe for concurrent use.
func (l *Locks[TX]) add(one *Lock[TX]) {
	l.locks = append(l.locks, one)
	l.client.mu.Lock()
	if one.hold.all == nil {
		one.hold.all = l
	}
	l.client.mu.Unlock()
	l.unwatch = append(l.unwatch, context.AfterFunc(one.Context(), func() { l.cancel(context.Cause(one.Context())) }))
}

// requests are what is wanted, in the order of the names.
func (c *Client[TX]) requests(op string, names []string, options []LockOption, wait bool) (requests []driver.Request, o *owner, err error) {
	var common lockConfig
	for _, option := range options {
		if option == nil {
			return nil, nil, &LockError{op, "", fmt.Errorf("%w: a nil LockOption", ErrInvalidOption)}
		}
		option(&common)
	}
	if len(names) == 0 {
		return nil, nil, &LockError{op, "", fmt.Errorf("%w: no names", ErrInvalidOption)}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for name := range common.each {
		if _, there := slices.BinarySearch(names, name); !there {
			return nil, nil, &LockError{op, name, fmt.Errorf("%w: For a name that is not asked for", ErrInvalidOption)}
		}
	}
	for _, name := range names {
		config, metadata, err := lockConfigOf(name, append(slices.Clone(options), common.each[name]...))
		config.each = nil
		if err == nil {
			err = c.allow(config)
		}
		switch {
		case err != nil:
		case c.keeper != nil:
			err = fmt.Errorf("%w: it needs locks in tables", ErrUnsupported)
		case config.owner != nil && (common.owner == nil || *config.owner != *common.owner):
			err = fmt.Errorf("%w: all names have one Owner: give it for all", ErrInvalidOption)
		}
		if err != nil {
			return nil, nil, &LockError{op, name, err}
		}
		requests = append(requests, config.request(name, metadata, wait))
	}
	return requests, common.owner, nil
}

// takeAll takes the names before the first that is not free, or that the owner has already, and
// returns how many.
func (c *Client[TX]) takeAll(ctx context.Context, all *Locks[TX], requests []driver.Request, o owner) (int, error) {
	fresh := 0
	for _, r := range requests[:min(len(requests), maxTogether)] {
		gate := gateKey{r.Name, o}
		if !c.gates.enter(ctx, gate, false) { // the same owner is at it elsewhere
			break
		}
		defer c.gates.leave(gate)
		c.mu.Lock()
		own := c.books.owners[gate] != nil || c.contended[r.Name]
		c.mu.Unlock()
		if own || c.ownPermits(ctx, r, o) != nil {
			break
		}
		fresh++
	}
	if fresh < 2 { // one is taken as well by Lock
		return 0, nil
	}
	var l *life
	err := c.statement(ctx, func(ctx context.Context) (err error) {
		l, err = c.tryLiving(ctx)
		return err
	})
	if err != nil {
		return 0, c.skip(err)
	}
	rs := slices.Clone(requests[:fresh])
	for i := range rs {
		rs[i].Session, rs[i].Attempt, rs[i].Host, rs[i].Thread = l.ID, rand.Text(), o.host, o.thread
		c.claim(rs[i].Attempt)
	}
	asked := c.config.clock()
	var grants []driver.Grant
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		grants, err = c.engine.TakeAll(ctx, rs)
		return err
	})
	taken := 0
	late := false
	for i, r := range rs {
		if i >= len(grants) || err != nil {
			c.unclaim(r.Attempt)
			continue
		}
		h, ok := c.hold(ctx, l, r, o, grants[i], asked)
		if !ok || late { // the answer came after a lease was over: what follows is out of order
			late = true
			if ok {
				c.drop(h, fmt.Errorf("%w: it came too late", ErrNotHeld))
			}
			c.abandon(l, r.Name, r.Attempt, false)
			continue
		}
		all.add(&Lock[TX]{client: c, hold: h})
		taken++
	}
	if err != nil && residueOf(err) == unsure {
		l.Check() // what has come of it all the same is nobody's
	}
	return taken, c.skip(err)
}

// skip passes over what Lock deals with name by name: a race that was lost, a database that is
// away.
func (c *Client[TX]) skip(err error) error {
	if transient(err) || errors.Is(err, errSessionOver) || errors.Is(err, ErrSchema) {
		return nil
	}
	return err
}

// Names returns the names, in the order of their bytes.
func (l *Locks[TX]) Names() []string {
	names := make([]string, len(l.locks))
	for i, one := range l.locks {
		names[i] = one.Name()
	}
	return names
}

// Tokens returns the fencing token of each name.
func (l *Locks[TX]) Tokens() map[string]int64 {
	tokens := make(map[string]int64, len(l.locks))
	for _, one := range l.locks {
		tokens[one.Name()] = one.Token()
	}
	return tokens
}

// Token returns the fencing token of one name; 0 where it is none of them.
func (l *Locks[TX]) Token(name string) int64 { return l.Tokens()[name] }

// Context ends when the first of the locks does, with its cause: see Lock.Context. Under it all
// names lock again at once.
func (l *Locks[TX]) Context() context.Context { return l.ctx }

// UnlockTx is Lock.UnlockTx for all of them.
func (l *Locks[TX]) UnlockTx(ctx context.Context, tx TX) error {
	for _, one := range l.locks {
		if err := one.UnlockTx(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Unlock gives all of them back: those for which nobody waits in one transaction. It goes on after
// an error, and returns all; otherwise as Lock.Unlock.
func (l *Locks[TX]) Unlock(ctx context.Context) error {
	if ctx == nil {
		return &LockError{"unlockall", "", fmt.Errorf("%w: the context is nil", ErrInvalidOption)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlocked {
		return l.outcome
	}
	ctx, cancel := toUnlock(ctx, l)
	defer cancel()
	for part := range slices.Chunk(l.locks, maxTogether) {
		l.client.releaseAll(ctx, part)
	}
	last := len(l.locks) - 1
	failures := byHands(len(l.locks), func(i int) error { return l.locks[last-i].Unlock(ctx) })
	for i, stop := range l.unwatch {
		if cause := context.Cause(l.locks[i].Context()); errors.Is(cause, ErrLost) {
			l.cancel(cause)
		}
		stop()
	}
	l.cancel(fmt.Errorf("%w: unlocked", ErrNotHeld))
	l.outcome = errors.Join(failures...)
	l.unlocked = l.outcome == nil || !slices.ContainsFunc(failures, func(err error) bool { return err != nil && !errors.Is(err, ErrLost) })
	return l.outcome
}

// releaseAll gives back together those locks for which it knows no reason to do it one by one.
// Unlock then finds them unlocked, or does the rest.
func (c *Client[TX]) releaseAll(ctx context.Context, locks []*Lock[TX]) {
	if len(locks) < 2 || c.begin() != nil {
		return
	}
	defer c.calls.Done()
	together := map[driver.Held]*Lock[TX]{}
	for _, l := range locks { // in the order of the names, as everybody
		h := l.hold
		l.mu.Lock()
		defer l.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		if !l.unlocked && h.count == 1 && h.ctx.Err() == nil && h.life.Alive() && !h.leaving.possible() && !h.contended && !h.unsure && !h.wavering.Load() {
			together[h.held()] = l
		}
	}
	if len(together) < 2 {
		return
	}
	list := slices.SortedFunc(maps.Keys(together), func(a, b driver.Held) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return int(min(max(a.Token-b.Token, -1), 1))
	})
	for _, l := range together {
		c.drop(l.hold, fmt.Errorf("%w: unlocked", ErrNotHeld))
		l.hold.count = 0
	}
	var rest []driver.Held
	err := driver.ErrRetry
	for tries := 0; tries < 3 && errors.Is(err, driver.ErrRetry); tries++ {
		err = c.statement(ctx, func(ctx context.Context) (err error) {
			rest, err = c.engine.ReleaseAll(ctx, list)
			return err
		})
	}
	if err != nil { // Unlock does each by itself; what was released all the same is no loss
		for _, l := range together {
			l.hold.unsure = l.hold.unsure || residueOf(err) == unsure
		}
		return
	}
	for _, h := range rest {
		delete(together, h)
	}
	for _, l := range together {
		c.unclaim(l.hold.attempt)
		c.record(l.hold, released, "")
		l.unlocked = true
	}
}
