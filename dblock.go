package dblock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/reaper"
)

// answerTimeout is how long Close waits for the answers of statements that are under way when it
// begins.
const answerTimeout = time.Second

// closingHands is how many locks Close and Locks.Unlock give back at a time.
const closingHands = 8

// Client takes locks in one database. It is safe for concurrent use; a process needs one. TX is the
// type of the application's own transactions, as the engine has it.
//
// From its first lock on, a client is a session in the database that a heartbeat keeps alive, and
// runs a reaper. It never closes the application's pool, and uses it for a moment at a time: a lock
// that is held or waited for needs no connection of it.
type Client[TX any] struct {
	engine driver.Engine[TX]
	keeper driver.Keeper[TX] // nil: the locks are in tables
	config config
	gates  gates

	background context.Context // ends when Close begins
	stop       context.CancelCauseFunc
	answering  context.Context // ends answerTimeout later: a statement that is cut off may take a lock all the same
	hangUp     context.CancelFunc
	tidying    context.Context // ends when Close has done its work, or was given no more time for it
	abort      context.CancelFunc
	calls      sync.WaitGroup // calls under way, and what they left to be undone; added to with mu locked and not closed
	lives      sync.WaitGroup // sessions and the reaper
	down       chan struct{}  // closed when nothing runs any more
	failure    error          // why not all could be given back; to be read once down is closed
	opening    chan struct{}  // a token: one goroutine at a time opens a session
	history    *history       // what WithEvents has still to write

	mu        sync.Mutex // protects what follows
	closed    bool
	life      *life           // the latest session; nil before the first
	dismiss   func()          // ends what the engine keeps for this client; nil before the first session
	attempts  map[string]bool // every attempt that somebody in this client waits for, holds or is undoing
	books     books
	overdue   map[string]bool          // attempts whose fixed lease is over here, and that the database may still have
	lent      map[string]any           // leases that stand behind a transaction's lock, by attempt: what identifies the transaction
	contended map[string]bool          // names that others waited for when last seen
	undoing   map[string]chan struct{} // attempts that are being undone; closed when they are
}

// New makes a client of an engine: dblock.New(postgres.New(pool)). It does no I/O and starts
// nothing: the first lock does. ErrConfig where the engine cannot work as it was set up,
// ErrInvalidOption where an option is out of range.
func New[TX any](engine driver.Engine[TX], options ...Option) (*Client[TX], error) {
	if err := validate(engine); err != nil {
		return nil, fmt.Errorf("dblock: %w", err)
	}
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if err := reaper.Check(config.reaper...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	c := &Client[TX]{
		engine: engine, config: config, gates: gates{busy: map[gateKey]chan struct{}{}},
		down: make(chan struct{}), opening: make(chan struct{}, 1),
		attempts: map[string]bool{}, books: newBooks(), contended: map[string]bool{},
		overdue: map[string]bool{}, undoing: map[string]chan struct{}{}, lent: map[string]any{}, history: &history{report: outage.New(config.log, "dblock: writing events")},
	}
	if engine.Native != nil {
		c.keeper = engine.Native.Open(config.log, config.ttl)
	}
	c.background, c.stop = context.WithCancelCause(context.Background())
	c.tidying, c.abort = context.WithCancel(context.Background())
	c.answering, c.hangUp = context.WithCancel(c.tidying)
	return c, nil
}

func validate[TX any](engine driver.Engine[TX]) error {
	switch {
	case engine.Native != nil:
		return engine.Native.Validate()
	case engine.Backend != nil:
		return engine.Backend.Validate()
	}
	return fmt.Errorf("%w: the engine is nil", ErrConfig)
}

// Lock waits until it holds the lock, first come first served over all processes, or until ctx
// ends. ctx bounds the waiting only, not the lock. A context under which this owner already holds
// the name enters it again at once.
//
// ErrNotAcquired, with the context's error and with the holder of the lock, when ctx ends: the
// place in the queue is given up, and so is a lock that was granted in the same moment. Lock
// returns at once: a client gives them up in the background, within a moment where the database
// answers, so that others may still see the place for that long. ErrUnavailable, with the context's
// error, when ctx ends before a holder or a queue was seen: the pool had no free connection, say.
// The context's error alone where ctx had ended already. ErrInvalidName, ErrInvalidOption before
// any I/O. ErrSchema, ErrReadOnly, ErrClosed. ErrUnavailable when the database was away at the
// first attempt of this client, or for longer than one TTL; while it waits, Lock survives restarts
// and failovers. So it is when the database or this machine is too slow for a Lease: when grants
// come after most of it is over. ErrDeadlock when waiters wait for each other in a cycle, and this
// is the one that began to wait last. ErrCapacity as Permits says.
func (c *Client[TX]) Lock(ctx context.Context, name string, options ...LockOption) (*Lock[TX], error) {
	return c.acquire(ctx, "lock", name, options, true)
}

// TryLock takes the lock if nobody holds it and nobody waits for it. If not, it returns
// ErrNotAcquired, with its holder, without waiting. Otherwise as Lock.
func (c *Client[TX]) TryLock(ctx context.Context, name string, options ...LockOption) (*Lock[TX], error) {
	return c.acquire(ctx, "trylock", name, options, false)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends when ctx
// does, and with cause ErrLost when the lock is lost; under it the same name locks again at once.
// Do returns what fn returns, joined with ErrLost if the lock was lost before fn returned.
// ErrInvalidOption without fn.
func (c *Client[TX]) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lock[TX]) error, options ...LockOption) (err error) {
	if fn == nil {
		return &LockError{"do", name, fmt.Errorf("%w: fn is nil", ErrInvalidOption)}
	}
	l, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock(ctx)) }()
	return l.run(ctx, fn)
}

// run calls fn with a context that ends when ctx does, or the lock.
func (l *Lock[TX]) run(ctx context.Context, fn func(ctx context.Context, l *Lock[TX]) error) error {
	inner, cancel := context.WithCancelCause(l.hold.under(ctx, l.client))
	defer cancel(context.Canceled)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	return fn(inner, l)
}

// TTL is how long the client's locks outlive its last heartbeat, as WithTTL says.
func (c *Client[TX]) TTL() time.Duration { return c.config.ttl }

// CheckSchema returns ErrSchema, saying what to run, unless the database has tables that this build
// can work with: those of its own version, or of a later one that says so. An engine without tables
// needs none.
func (c *Client[TX]) CheckSchema(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("dblock: check schema: %w: the context is nil", ErrInvalidOption)
	}
	if err := c.checkSchema(ctx); err != nil {
		return fmt.Errorf("dblock: check schema: %w", err)
	}
	return nil
}

func (c *Client[TX]) checkSchema(ctx context.Context) error {
	if c.keeper != nil {
		return nil
	}
	schema, err := c.engine.Schema(ctx)
	if err != nil {
		return err
	}
	return schema.Check()
}

// Close releases every lock that the client still holds, ends their contexts with cause ErrClosed,
// calls off all waiters (ErrClosed), and ends the session. It waits up to a second for statements
// under way, and up to five for transactions that hold rows it needs: what is behind those expires
// with the session. When it returns nil, nothing of the client runs any more. If ctx ends before
// the database has answered, Close says so, stops trying, and what is left expires with the
// session. Close is idempotent.
func (c *Client[TX]) Close(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("dblock: close: %w: the context is nil", ErrInvalidOption)
	}
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		go c.shutDown()
	}
	c.mu.Unlock()
	select {
	case <-c.down:
	case <-ctx.Done():
		c.abort()
		return fmt.Errorf("dblock: close: %w", context.Cause(ctx))
	}
	if c.failure != nil {
		return fmt.Errorf("dblock: close: %w", c.failure)
	}
	return nil
}

// shutDown is what Close waits for. No call begins any more.
func (c *Client[TX]) shutDown() {
	defer close(c.down)
	defer c.abort()
	c.stop(ErrClosed)
	defer time.AfterFunc(answerTimeout, c.hangUp).Stop()
	c.mu.Lock()
	holds := slices.Collect(maps.Values(c.books.holds))
	c.mu.Unlock()
	c.failure = errors.Join(byHands(len(holds), func(i int) error { return c.giveUp(holds[i]) })...)
	c.calls.Wait()
	c.writeHistory(c.tidying)
	if c.life != nil {
		c.failure = errors.Join(c.failure, c.endLife(c.life))
	}
	if c.keeper != nil {
		c.failure = errors.Join(c.failure, c.keeper.Close(c.tidying))
	}
	c.lives.Wait()
	if c.dismiss != nil {
		c.dismiss()
	}
}

// byHands does n things, some at a time, and returns what came of each.
func byHands(n int, do func(i int) error) []error {
	outcomes := make([]error, n)
	hands := make(chan struct{}, closingHands)
	var given sync.WaitGroup
	for i := range n {
		hands <- struct{}{}
		given.Go(func() {
			outcomes[i] = do(i)
			<-hands
		})
	}
	given.Wait()
	return outcomes
}

// statement runs one call of the engine within its bound. A call that its bound cut short is a
// database that does not answer; one that the caller's context cut short is the caller's.
func (c *Client[TX]) statement(ctx context.Context, f func(ctx context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, c.config.ttl)
	defer cancel()
	err := f(inner)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return driver.Fail(ErrUnavailable, fmt.Errorf("no answer within %v%s: %w", c.config.ttl, c.exhausted(), errors.New(err.Error())))
	}
	return err
}

// exhausted says so, for a text, where the pool has no free connection.
func (c *Client[TX]) exhausted() string {
	if c.keeper != nil {
		return ""
	}
	inUse, most := c.engine.Connections()
	if most == 0 || inUse < most {
		return ""
	}
	return fmt.Sprintf(": the pool gave no connection, all %d are in use", most)
}
