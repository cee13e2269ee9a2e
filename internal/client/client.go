package client

import (
	"cmp"
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/reaper"
)

// answerTimeout limits how long Close waits for the answers of statements in flight.
const answerTimeout = time.Second

// New makes a client with locks in tables. It does no I/O and starts nothing: the first lock
// does.
func New(engine driver.Backend, config Config) *Client {
	log, logging := tell.Logger(config.Log)
	config.Log = log
	observing := tell.Calls(log, "the observer")
	db := store.New(engine, store.Config{
		Host: config.Host, App: config.App, TTL: config.TTL, Clock: config.Clock, Log: log, Deadlock: config.Deadlock,
	})
	report := func(what string) *outage.Report { return outage.New(log, "dblock: "+what) }
	c := &Client{
		engine: engine, store: db, config: config,
		telling:   []*tell.Queue{observing, logging},
		history:   history.New(db, history.Config{On: config.Events, TTL: config.TTL, Clock: config.Clock, Log: log}),
		splitting: report("showing the holder of a lock"), givingBack: report("releasing in the background"),
		down: make(chan struct{}), stuck: make(chan struct{}), undoing: make(chan struct{}, parallelism),
	}
	c.ledger = ledger.New(ledger.Config{
		Host: config.Host, TTL: config.TTL, Clock: config.Clock, Log: log, Calls: db.Calls, Ended: c.ended,
	})
	c.owners = c.ledger.Owners
	c.queues = c.newQueues()
	if config.Observer != nil {
		c.observer = queued(config.Observer, observing)
	}
	hooks := store.Hooks{
		Reconcile: c.reconcile, Holding: c.ledger.Holding, Unused: c.ledger.Empty, Stray: c.unknownGrant,
		Own:       c.ownWaits,
		Reclaimed: c.history.Expired, Lost: c.ledger.LoseSession, First: c.serve, Opened: config.Opened,
	}
	if c.observer != nil {
		hooks.Beaten, hooks.Listener = c.observer.Heartbeat, c.observer.Listener
	}
	c.sessions = store.NewSessions(db, hooks)
	c.transactions = c.newTransactions()
	return c
}

// serve starts the client's history and its reaper, with its first session.
func (c *Client) serve() {
	if c.history.On() {
		c.sessions.Go(c.history.Run)
	}
	if c.config.Reap {
		c.sessions.Go(func() {
			options := []reaper.Option{
				reaper.Logger(c.config.Log), reaper.While(func() bool { return c.sessions.Alive() != nil }),
			}
			if c.config.Events {
				options = append(options, reaper.Events())
			}
			_ = reaper.Run(clock.With(c.store.Background, c.config.Clock), c.engine,
				append(options, c.config.Reaper...)...)
		})
	}
}

// Close releases the locks, and ends everything of the client. When it returns nil, nothing of the
// client runs any more. If ctx ends first, Close stops trying. If ctx had ended before the call,
// such as that of a program which a signal ends, Close tries for a few seconds. It returns after
// contract.CloseTimeout and contract.StuckTimeout even if a function or a driver does not end with
// its context.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, c)
	defer cancel()
	if c.store.Close() {
		go c.shutDown()
	}
	select {
	case <-c.down:
	case <-ctx.Done():
		c.store.Abort()
		return context.Cause(ctx)
	case <-c.stuck:
	}
	select {
	case <-c.down:
		return c.failure
	default:
		return contract.ErrStuck
	}
}

// shutDown does the work of Close. No call begins any more.
func (c *Client) shutDown() {
	defer close(c.down)
	defer c.store.Abort()
	c.store.Stop(ErrClosed)
	defer time.AfterFunc(answerTimeout, c.store.HangUp).Stop()
	limit := cmp.Or(c.config.Closing, contract.CloseTimeout)
	defer time.AfterFunc(limit, c.store.Abort).Stop()
	defer time.AfterFunc(limit+contract.StuckTimeout, func() { close(c.stuck) }).Stop()
	var holds []*ledger.Hold
	for _, h := range c.ledger.Close() {
		if c.ledger.Drop(h, ErrClosed) {
			holds = append(holds, h)
		}
	}
	c.failure = driver.Join(parallel(len(holds), func(i int) error { return c.releaseFor(holds[i], ErrClosed) })...)
	c.store.Wait()
	if c.history.On() {
		c.history.Flush(c.store.Tidying)
	}
	c.failure = driver.Join(c.failure, c.sessions.End())
	c.sessions.Wait()
	tell.Flush(c.telling...)
}
