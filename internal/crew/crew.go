// Package crew keeps an engine's own connections for work that may wait for a row, beside the
// connection that beats.
//
// A connection is opened when work needs one, up to a number at a time, and is kept for the next
// piece of work while a client attends. Without a client every connection is closed after its work:
// nobody closes an engine, so nothing may outlive the clients. A connection that has been idle for
// half of the limit is closed, except the last one, which is asked for a sign of life: where the
// connections come out of the application's pool, another one may not be had when it is needed
// most, while every connection of the pool is in a transaction that waits for this crew.
package crew

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Config is how a crew opens, tests and closes its connections.
type Config[C any] struct {
	// Most is how many connections may be open at a time. It is asked once, at the first piece of
	// work.
	Most func() int
	// Open opens a connection. Limit is how long it may be idle: for that long it is kept.
	Open  func(ctx context.Context, limit time.Duration) (C, error)
	Ping  func(ctx context.Context, conn C) error
	Close func(conn C) // does not wait for the network for long
}

// Crew is a set of connections. Its zero value is not usable: use New.
type Crew[C any] struct {
	config Config[C]
	once   sync.Once
	slots  chan struct{} // holds one token for each piece of work that has a connection, or opens one

	mu      sync.Mutex // protects what follows
	clients map[*client]bool
	limit   time.Duration // the shortest TTL of the clients
	idle    []idle[C]     // the one that was used last comes last; each was opened while somebody attended
	tending context.CancelFunc
	tended  chan struct{} // closed when the goroutine that tends has ended
	wanted  chan struct{} // asks for a first connection
}

type client struct{ ttl time.Duration }

type idle[C any] struct {
	conn  C
	limit time.Duration
	since time.Time
}

// DefaultLimit is how long a connection may be silent where nobody with a TTL attends.
const DefaultLimit = 15 * time.Second

// pingTimeout bounds a sign of life.
const pingTimeout = time.Second

// New makes a crew without connections. It does no I/O.
func New[C any](config Config[C]) *Crew[C] {
	return &Crew[C]{config: config, clients: map[*client]bool{}, limit: DefaultLimit, wanted: make(chan struct{}, 1)}
}

// Attend keeps connections from now on, until leave is called by all who attend. The shortest TTL
// of those who attend and have one bounds for how long the server lets a silent connection of the
// crew stand; without any, DefaultLimit does. leave closes what is idle when it was the last, and
// waits for that; it may be called more than once.
func (c *Crew[C]) Attend(ttl time.Duration) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	me := &client{ttl}
	c.clients[me] = true
	c.measure()
	if len(c.clients) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		c.tending, c.tended = cancel, make(chan struct{})
		go c.tend(ctx, c.tended)
	}
	return func() { c.leave(me) }
}

func (c *Crew[C]) leave(me *client) {
	c.mu.Lock()
	if !c.clients[me] {
		c.mu.Unlock()
		return
	}
	delete(c.clients, me)
	c.measure()
	if len(c.clients) > 0 {
		c.mu.Unlock()
		return
	}
	c.tending()
	tended := c.tended
	c.mu.Unlock()
	<-tended
	c.drop()
}

// measure MUST be called with mu locked.
func (c *Crew[C]) measure() {
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

// Warm asks for a connection to be opened in the background, if there is none and somebody attends.
func (c *Crew[C]) Warm() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// Do runs do on a connection that nothing else uses. Where a kept connection turns out to be
// broken, that is where do returns ErrUnavailable, it runs do once more on a new one. A connection
// is kept only after an answer.
func (c *Crew[C]) Do(ctx context.Context, do func(ctx context.Context, conn C) error) error {
	slots := c.room()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if one, ok := c.take(); ok {
		err := c.use(ctx, one, do)
		if !errors.Is(err, driver.ErrUnavailable) || errors.As(err, new(Sent)) || ctx.Err() != nil {
			return err
		}
	}
	c.drop() // what is idle broke together with the other one, or was silent for too long
	c.mu.Lock()
	limit := c.limit
	c.mu.Unlock()
	conn, err := c.config.Open(ctx, limit)
	if err != nil {
		return err
	}
	return c.use(ctx, idle[C]{conn: conn, limit: limit}, do)
}

// Sent is an error of work that may have been done all the same: Do does not run it again.
type Sent struct{ Err error }

func (s Sent) Error() string { return s.Err.Error() }

// Unwrap returns the error.
func (s Sent) Unwrap() error { return s.Err }

// Attended reports whether anybody attends.
func (c *Crew[C]) Attended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.clients) > 0
}

// room holds as many tokens as connections may be open.
func (c *Crew[C]) room() chan struct{} {
	c.once.Do(func() { c.slots = make(chan struct{}, c.config.Most()) })
	return c.slots
}

func (c *Crew[C]) use(ctx context.Context, one idle[C], do func(ctx context.Context, conn C) error) (err error) {
	sound := false
	defer func() {
		if !sound || !c.put(one) {
			c.config.Close(one.conn)
		}
	}()
	err = do(ctx, one.conn)
	sound = ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	return err
}

// take takes the idle connection that was used last, unless the server may have ended it by now:
// then all of them.
func (c *Crew[C]) take() (idle[C], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return idle[C]{}, false
	}
	last := c.idle[len(c.idle)-1]
	if time.Since(last.since) >= last.limit {
		return idle[C]{}, false // Do drops it
	}
	c.idle = c.idle[:len(c.idle)-1]
	return last, true
}

// put keeps a connection. It reports false where nobody attends, or for a shorter TTL than the
// connection is set up for.
func (c *Crew[C]) put(one idle[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.clients) == 0 || one.limit > c.limit {
		return false
	}
	one.since = time.Now()
	c.idle = append(c.idle, one)
	return true
}

// drop closes all that is idle.
func (c *Crew[C]) drop() {
	c.mu.Lock()
	old := c.idle
	c.idle = nil
	c.mu.Unlock()
	c.close(old)
}

func (c *Crew[C]) close(old []idle[C]) {
	var closed sync.WaitGroup
	for _, one := range old {
		closed.Go(func() { c.config.Close(one.conn) })
	}
	closed.Wait()
}

// tend closes what is idle for long, keeps the last connection alive, and opens the first where
// Warm asks for it.
func (c *Crew[C]) tend(ctx context.Context, tended chan struct{}) {
	defer close(tended)
	for {
		c.mu.Lock()
		pause := c.limit / 4
		c.mu.Unlock()
		ping := false
		select {
		case <-ctx.Done():
			return
		case <-c.wanted:
			ping = true
		case <-time.After(pause):
		}
		old, silent := c.stale()
		c.close(old)
		if ping || silent {
			c.ping(ctx)
		}
	}
}

// stale takes out what has been idle for half of its limit, except the connection that was used
// last, which silent tells of.
func (c *Crew[C]) stale() (old []idle[C], silent bool) {
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

// ping asks a connection for a sign of life, which opens one where there is none.
func (c *Crew[C]) ping(ctx context.Context) {
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
