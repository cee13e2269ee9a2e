package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tell"
)

var errClosed = errors.New("the client was closed")

// Keeper has the locks of one client. All methods are safe for concurrent use; every wait ends with
// its context. They return errors that match one of the kinds of package driver, the context's own
// error, or the vendor's error unchanged.
type Keeper[K comparable] struct {
	server  Server[K]
	log     *slog.Logger
	logging *tell.Queue
	ttl     time.Duration   // how long a wait survives the absence of the server
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup // added to with mu locked and not closed
	slots   chan struct{}  // one for each waiter in use

	mu      sync.Mutex // guards the fields below, and the fields of line and pin
	closed  bool
	reached bool    // a connection has been opened
	pin     *pin[K] // nil: none
	lines   map[K]*line[K]
	idle    []*idleWaiter[K]
}

// New makes a keeper. Its waits survive an absence of the server that is shorter than ttl. It does
// no I/O.
func New[K comparable](server Server[K], log *slog.Logger, ttl time.Duration) *Keeper[K] {
	log, logging := tell.Logger(log)
	k := &Keeper[K]{server: server, log: log, logging: logging, ttl: ttl, slots: make(chan struct{}, MaxWaiters),
		lines: make(map[K]*line[K])}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Limit lowers the number of simultaneous waiters from MaxWaiters. It must be called first.
func (k *Keeper[K]) Limit(waiters int) { k.slots = make(chan struct{}, min(waiters, MaxWaiters)) }

// line is this client's hold of a key, and the queue of its requests. It exists while there is
// either.
type line[K comparable] struct {
	key K
	// exclusive and shares are the hold by the operations sent so far, since the pinned connection
	// keeps their order.
	exclusive bool
	shares    int
	queue     []*request[K]
	seen      bool   // the server has reported that the lock is not free
	busy      bool   // an operation for the first request is in flight
	attended  bool   // a goroutine attends to the queue, since its first request has to wait
	interrupt func() // ends the wait of the waiter; nil: it does not wait
}

// request is one call of Acquire.
type request[K comparable] struct {
	shared, wait bool
	abandoned    bool // its caller has gone; such a request stays only as the first of a busy line
	done         chan struct{}
	possession   *possession[K] // possession and err are set before done is closed
	err          error
}

func (l *line[K]) admits(shared bool) bool { return !l.exclusive && (shared || l.shares == 0) }

// Possession is one name that was acquired.
type Possession interface {
	// Kept ends when the connection is gone, and the lock with it. Its cause is the reason.
	Kept() context.Context

	// Release releases the name, once. A second call waits for the same answer. Release returns
	// ErrNotHeld if the lock was lost.
	Release(ctx context.Context) error
}

// Acquire takes a name, exclusive or shared. Goroutines that want the same name get it in the order
// of their requests. With wait false, Acquire returns false if the name has another holder or a
// waiter. It returns ErrConfig if the connection cannot keep locks (a pooler in between, a
// cluster), and ErrReadOnly on a standby.
func (k *Keeper[K]) Acquire(ctx context.Context, name string, shared, wait bool) (Possession, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	key := k.server.Key(name)
	r := &request[K]{shared: shared, wait: wait, done: make(chan struct{})}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, false, driver.Fail(driver.ErrUnavailable, errClosed)
	}
	l := k.lines[key]
	if l == nil {
		l = &line[K]{key: key}
		k.lines[key] = l
	}
	l.queue = append(l.queue, r)
	switch {
	case l.attended: // its first request has to wait, and all behind it
		if !wait && len(l.queue) > 1 {
			k.remove(l, r, nil, nil)
		}
	case len(l.queue) == 1:
		k.advance(l)
	}
	k.mu.Unlock()

	select {
	case <-r.done:
	case <-ctx.Done():
		k.abandon(l, r, ctx.Err())
		<-r.done
	}
	if r.possession == nil { // not a nil *possession in an interface
		return nil, false, r.err
	}
	return r.possession, true, nil
}

// abandon settles a request whose caller no longer waits, unless it was settled in the same moment.
func (k *Keeper[K]) abandon(l *line[K], r *request[K], cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.Index(l.queue, r)
	if at == 0 && !l.seen && l.admits(r.shared) { // no other holder is known
		cause = driver.Fail(driver.ErrUnavailable, fmt.Errorf("no answer before the context ended: %w", cause))
	}
	switch {
	case at < 0:
	case at == 0 && l.busy:
		// The operation in flight for it has to end first: the next request may want the other
		// mode.
		r.abandoned, r.err = true, cause
		close(r.done)
	default:
		k.remove(l, r, nil, cause)
		if at == 0 && l.interrupt != nil && (len(l.queue) == 0 || l.queue[0].shared != r.shared) {
			l.interrupt() // otherwise the next request inherits the place
		}
	}
}

// remove settles a request. MUST be called with mu locked.
func (k *Keeper[K]) remove(l *line[K], r *request[K], p *possession[K], err error) {
	at := slices.Index(l.queue, r)
	l.queue = slices.Delete(l.queue, at, at+1)
	if r.abandoned {
		if p != nil {
			k.give(p, func(error) {})
		}
	} else {
		r.possession, r.err = p, err
		close(r.done)
	}
	k.forget(l)
}

// forget drops a line that has no holder and no request. MUST be called with mu locked.
func (k *Keeper[K]) forget(l *line[K]) {
	if !l.exclusive && l.shares == 0 && len(l.queue) == 0 && !l.attended && k.lines[l.key] == l {
		delete(k.lines, l.key)
	}
}

// advance starts the operation that the first request of the queue needs. MUST be called with mu
// locked, and with the line neither busy nor attended.
func (k *Keeper[K]) advance(l *line[K]) {
	for len(l.queue) > 0 {
		r := l.queue[0]
		switch {
		case l.admits(r.shared):
			k.send(l, r, Try, nil, func(_ bool, err error) {
				l.seen = l.seen || err == nil
				switch {
				case len(l.queue) == 0 || l.queue[0] != r: // settled
					k.advance(l)
				case r.wait && (err == nil || k.passes(err)):
					k.attend(l)
				default:
					k.remove(l, r, nil, err)
					k.advance(l)
				}
			})
			return
		case r.wait:
			k.attend(l)
			return
		default:
			k.remove(l, r, nil, nil)
		}
	}
}

// send runs Try or Take for the first request of the queue, and once more if its connection was
// lost meanwhile. It settles the request if the lock was taken, if the server refused the
// operation, or if the caller has gone. Otherwise then, which is called with mu locked, decides
// about the request. place is the waiter's in the server's queue. MUST be called with mu locked.
func (k *Keeper[K]) send(l *line[K], r *request[K], kind Kind, place chan struct{}, then func(taken bool, err error)) {
	l.busy = true
	answered := func(p *pin[K], op Op[K], err error) {
		l.busy = false
		taken := err == nil && op.OK
		var lost lostError
		switch {
		case taken:
			if r.shared {
				l.shares++
			} else {
				l.exclusive = true
			}
			k.remove(l, r, &possession[K]{keeper: k, pin: p, line: l, shared: r.shared, place: place,
				given: make(chan struct{})}, nil)
		case errors.As(err, &lost):
			err = lost.failure()
			if r.abandoned {
				k.remove(l, r, nil, err)
			}
		case op.Err != nil || r.abandoned:
			k.remove(l, r, nil, err)
		}
		then(taken, err)
	}
	op := Op[K]{Kind: kind, Key: l.key, Shared: r.shared}
	k.submit(op, func(p *pin[K], answer Op[K], err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		var lost lostError
		if !errors.As(err, &lost) || r.abandoned || k.closed {
			answered(p, answer, err)
			return
		}
		k.submit(op, func(p *pin[K], answer Op[K], err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			answered(p, answer, err)
		})
	})
}

// passes reports whether a failure may be temporary: the server was reached before. MUST be called
// with mu locked.
func (k *Keeper[K]) passes(err error) bool {
	return k.reached && !k.closed && (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDenied))
}

// Close closes the connections. It does not release locks one by one: the end of the connection
// does that. When it returns nil, no goroutine of the keeper runs any more. It is idempotent.
func (k *Keeper[K]) Close(ctx context.Context) error {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		for _, l := range k.lines {
			k.dismiss(l)
		}
		k.stop()
		for _, w := range k.idle {
			w.timer.Stop()
			k.running.Go(w.Close)
		}
		k.idle = nil
	}
	k.mu.Unlock()
	down := make(chan struct{})
	go func() { defer close(down); k.running.Wait(); tell.Flush(k.logging) }()
	select {
	case <-down:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the connections are still being closed: %w", context.Cause(ctx))
	}
}

// dismiss settles the waiting requests of a line when the keeper is closed. An operation in flight
// comes to its own end. MUST be called with mu locked.
func (k *Keeper[K]) dismiss(l *line[K]) {
	for _, r := range slices.Clone(l.queue) {
		if !l.busy || r != l.queue[0] {
			k.remove(l, r, nil, driver.Fail(driver.ErrUnavailable, errClosed))
		}
	}
}

// possession is a name that was acquired.
type possession[K comparable] struct {
	keeper *Keeper[K]
	pin    *pin[K]
	line   *line[K]
	shared bool
	place  chan struct{} // closed when the waiter has left the queue; nil: there was none

	giving sync.Once
	given  chan struct{} // closed when the server has answered
	denied error         // read once given is closed
}

func (p *possession[K]) Kept() context.Context { return p.pin.kept }

var errDenied = errors.New("the server says that the lock was not held: something unlocked it on the connection " +
	"that keeps this client's locks, which was closed")

// Release releases the lock. If ctx ends first, the lock is still released once the server can be
// reached again or has ended the connection. It is released only once: by the time of a second
// call, another request may hold the name on the same connection. A second call waits for the same
// answer.
func (p *possession[K]) Release(ctx context.Context) error {
	if p.place != nil {
		// Without this wait a free lock would have a queue for a moment, and a TryLock would fail
		// although no other client wants the lock.
		select {
		case <-p.place:
		case <-ctx.Done():
		}
	}
	p.giving.Do(func() {
		p.keeper.mu.Lock()
		defer p.keeper.mu.Unlock()
		p.keeper.give(p, func(err error) {
			p.denied = err
			close(p.given)
		})
	})
	select {
	case <-p.given:
		if p.denied != nil { // any error was the end of the connection
			return driver.Fail(driver.ErrNotHeld, p.denied)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give sends the release. From then on the line counts as free: later operations run after it. MUST
// be called with mu locked.
func (k *Keeper[K]) give(p *possession[K], then func(err error)) {
	if k.pin != p.pin {
		then(context.Cause(p.pin.kept))
		return
	}
	if p.shared {
		p.line.shares--
	} else {
		p.line.exclusive = false
	}
	k.submit(Op[K]{Kind: Give, Key: p.line.key, Shared: p.shared}, func(_ *pin[K], _ Op[K], err error) { then(err) })
	k.forget(p.line)
}
