package client

import (
	"cmp"
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/internal/tx"
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
		Crash: config.Crash,
	})
	c := &Client{
		engine: engine, store: db, config: config,
		telling: []*tell.Queue{observing, logging},
		report: reporter{
			clock:   config.Clock,
			history: history.New(db, history.Config{On: config.Events, TTL: config.TTL, Clock: config.Clock, Log: log}),
		},
		down: make(chan struct{}), stuck: make(chan struct{}),
	}
	if config.Observer != nil {
		c.report.observer = queued(config.Observer, observing)
	}
	c.ledger = ledger.New(ledger.Config{
		Host: config.Host, TTL: config.TTL, Clock: config.Clock, Log: log, Store: db, Client: keeper{c},
	})
	c.owners = c.ledger.Owners
	c.sessions = store.NewSessions(db, keeper{c})
	c.transactions = tx.New(tx.Config{Store: db, Sessions: c.sessions, Ledger: c.ledger, Leases: keeper{c}})
	return c
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
	var dropped []*ledger.Claim
	for _, claim := range c.ledger.Close() {
		if c.ledger.Drop(claim, ErrClosed) {
			dropped = append(dropped, claim)
		}
	}
	c.failure = driver.Join(parallel(len(dropped), func(i int) error { return c.releaseFor(dropped[i], ErrClosed) })...)
	c.store.Wait()
	if c.report.history.On() {
		c.report.history.Flush(c.store.Tidying)
	}
	c.failure = driver.Join(c.failure, c.sessions.End())
	c.sessions.Wait()
	tell.Flush(c.telling...)
}
