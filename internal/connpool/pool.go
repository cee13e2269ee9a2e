// Package connpool is a pool of an engine's own connections, for work that may wait for a row. The
// heartbeat's connection is not part of it.
//
// A connection is opened when work needs one, up to a limit, and kept for the next piece of work
// while a client attends. Without a client every connection is closed after its work: an engine has
// no Close, so nothing may outlive the clients. A connection that has been idle for half of the
// time limit is closed, except the last one, which is pinged. If the connections come from the
// application's pool, another one may not be available when it is needed most: while every
// connection of the pool is in a transaction that waits for this side pool.
package connpool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Config has the functions that open, test and close the connections of a side pool.
type Config[C any] struct {
	// Source is the application's pool from which the connections come; nil: they are beside it.
	Source any
	// Most returns the largest number of open connections. It is called once, at the first piece of
	// work.
	Most func() int
	// Open opens a connection. limit is the time after which the server ends the idle connection.
	Open func(ctx context.Context, limit time.Duration) (C, error)
	Ping func(ctx context.Context, conn C) error
	// Closed reports whether the application has closed Source, whose Close waits for the
	// connections that it has lent. It is called every closedCheck while a client attends. nil: no
	// Close waits.
	Closed func() bool
	Close  func(conn C) // must not wait for the network for long
}

// Pool is a pool of connections. Use New: its zero value is not usable.
type Pool[C any] struct {
	config Config[C]
	once   sync.Once
	slots  chan struct{} // one element for each piece of work that has a connection or opens one

	mu      sync.Mutex // protects the fields below
	clients map[*client]bool
	limit   time.Duration // the shortest TTL of the clients
	idle    []idle[C]     // in the order of their last use; each was opened while a client attended
	stop    context.CancelFunc
	stopped chan struct{} // closed when the goroutine of maintain has ended
	warm    chan struct{} // requests a first connection
}

type client struct{ ttl time.Duration }

type idle[C any] struct {
	conn  C
	limit time.Duration
	since time.Time
}

// DefaultLimit limits how long a connection may be idle where no client with a TTL attends.
const DefaultLimit = 15 * time.Second

const (
	// pingTimeout bounds a ping.
	pingTimeout = time.Second
	// closedCheck is below the second after which pgxpool pings an idle connection: to take one for
	// each check sends nothing.
	closedCheck = 900 * time.Millisecond
)

// New makes a side pool without connections. It does no I/O.
func New[C any](config Config[C]) *Pool[C] {
	return &Pool[C]{config: config, clients: map[*client]bool{}, limit: DefaultLimit, warm: make(chan struct{}, 1)}
}

// Attend keeps connections from now on, until every client that attends has called leave. The
// server ends a connection of the side pool that is idle for the shortest TTL of the clients, or
// for DefaultLimit if none has a TTL. The last leave closes the idle connections and waits for
// that. leave is idempotent.
func (c *Pool[C]) Attend(ttl time.Duration) (leave func()) {
	defer c.register()
	c.mu.Lock()
	defer c.mu.Unlock()
	me := &client{ttl}
	c.clients[me] = true
	c.setLimit()
	if len(c.clients) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		c.stop, c.stopped = cancel, make(chan struct{})
		go c.maintain(ctx, c.stopped)
	}
	return func() { c.leave(me) }
}

func (c *Pool[C]) leave(me *client) {
	defer c.register()
	c.mu.Lock()
	if !c.clients[me] {
		c.mu.Unlock()
		return
	}
	delete(c.clients, me)
	c.setLimit()
	if len(c.clients) > 0 {
		c.mu.Unlock()
		return
	}
	c.stop()
	stopped := c.stopped
	c.mu.Unlock()
	<-stopped
	c.Drop()
}

// setLimit MUST be called with mu locked.
func (c *Pool[C]) setLimit() {
	c.limit = 0
	for one := range c.clients {
		if one.ttl > 0 && (c.limit == 0 || one.ttl < c.limit) {
			c.limit = one.ttl
		}
	}
	if c.limit == 0 {
		c.limit = DefaultLimit
	}
}

// Warm opens a connection in the background, if there is none and a client attends.
func (c *Pool[C]) Warm() {
	select {
	case c.warm <- struct{}{}:
	default:
	}
}

// broken reports whether a connection is of no more use, such as one to a server that has become
// read-only: a failover has left it there.
func broken(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrReadOnly)
}

// Do runs do on a connection that no other work uses. If do returns ErrUnavailable or ErrReadOnly
// on a kept connection, that connection is broken, and do runs once more on a new one. A connection
// is kept only after the server has answered on it.
func (c *Pool[C]) Do(ctx context.Context, do func(ctx context.Context, conn C) error) error {
	slots := c.capacity()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if one, ok := c.take(); ok {
		err := c.use(ctx, one, do)
		if !broken(err) || errors.As(err, new(Sent)) || ctx.Err() != nil {
			return err
		}
	}
	c.Drop() // the idle connections broke together with this one, or were idle for too long
	c.mu.Lock()
	limit := c.limit
	c.mu.Unlock()
	conn, err := c.config.Open(ctx, limit)
	if err != nil {
		return err
	}
	return c.use(ctx, idle[C]{conn: conn, limit: limit}, do)
}

// Sent is an error of work that may have been done nevertheless. Do does not run such work again.
type Sent struct{ Err error }

func (s Sent) Error() string { return s.Err.Error() }

// Unwrap returns the error.
func (s Sent) Unwrap() error { return s.Err }

// Attended reports whether a client attends.
func (c *Pool[C]) Attended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.clients) > 0
}

// capacity returns the channel of slots, which it makes at the first call.
func (c *Pool[C]) capacity() chan struct{} {
	c.once.Do(func() { c.slots = make(chan struct{}, c.config.Most()) })
	return c.slots
}

func (c *Pool[C]) use(ctx context.Context, one idle[C], do func(ctx context.Context, conn C) error) (err error) {
	sound := false
	defer func() {
		if !sound || !c.put(one) {
			c.config.Close(one.conn)
		}
	}()
	err = do(ctx, one.conn)
	sound = ctx.Err() == nil && !broken(err) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded)
	return err
}

// take returns the idle connection that was used last, unless the server may have ended it by now.
// Then the server has ended all of them.
func (c *Pool[C]) take() (idle[C], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return idle[C]{}, false
	}
	last := c.idle[len(c.idle)-1]
	if time.Since(last.since) >= last.limit {
		return idle[C]{}, false // Do drops the connection
	}
	c.idle = c.idle[:len(c.idle)-1]
	return last, true
}

// put keeps a connection. It returns false where no client attends, or one with a shorter TTL than
// the connection is set up for.
func (c *Pool[C]) put(one idle[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.clients) == 0 || one.limit > c.limit {
		return false
	}
	one.since = time.Now()
	c.idle = append(c.idle, one)
	return true
}

// Drop closes all idle connections.
func (c *Pool[C]) Drop() {
	c.mu.Lock()
	old := c.idle
	c.idle = nil
	c.mu.Unlock()
	c.close(old)
}

func (c *Pool[C]) close(old []idle[C]) {
	var closed sync.WaitGroup
	for _, one := range old {
		closed.Go(func() { c.config.Close(one.conn) })
	}
	closed.Wait()
}

// maintain closes connections that are idle for long, keeps the last one alive, and opens the first
// one for Warm. If the application has closed their pool, it closes all that are idle, and those
// that are put back later.
func (c *Pool[C]) maintain(ctx context.Context, stopped chan struct{}) {
	defer close(stopped)
	for {
		c.mu.Lock()
		pause := c.limit / 4
		c.mu.Unlock()
		if c.config.Closed != nil {
			pause = min(pause, closedCheck)
		}
		ping := false
		select {
		case <-ctx.Done():
			return
		case <-c.warm:
			ping = true
		case <-time.After(pause):
		}
		if c.config.Closed != nil && c.config.Closed() {
			c.Drop()
			continue
		}
		old, silent := c.stale()
		c.close(old)
		if ping || silent {
			c.ping(ctx)
		}
	}
}

// stale removes and returns the connections that have been idle for half of their limit, except the
// one used last. silent reports whether that one has been idle for as long.
func (c *Pool[C]) stale() (old []idle[C], silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 && time.Since(c.idle[0].since) >= c.idle[0].limit/2 {
		if len(c.idle) == 1 {
			return old, true
		}
		old = append(old, c.idle[0])
		c.idle = c.idle[1:]
	}
	return old, false
}

// ping pings a connection, and opens one if there is none.
func (c *Pool[C]) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, DefaultLimit)
	defer cancel()
	_ = c.Do(ctx, func(ctx context.Context, conn C) error {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if err := c.config.Ping(ctx, conn); err != nil {
			return driver.Fail(driver.ErrUnavailable, err)
		}
		return nil
	})
}
