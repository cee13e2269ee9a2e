package client

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/internal/tx"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/reaper"
)

// Config is how a client works. Package dblock documents the options.
type Config struct {
	TTL       time.Duration
	Host, App string
	Log       *slog.Logger
	Clock     clock.Clock
	Deadlock  time.Duration // how long a waiter waits before it looks for a cycle; 0: never
	Events    bool
	Reap      bool
	Reaper    []reaper.Option
	Observer  *observe.Observer // nil: none

	// Closing is how long Close works on what it can; 0: contract.CloseTimeout. For tests.
	Closing time.Duration

	// Opened is told of each session, and returns what is to be told when all locks of the session
	// are lost. nil: nobody is told. For tests that move the clock.
	Opened func(s *session.Session) (lost func())

	// NotAcquired makes the error that matches ErrNotAcquired, and cause where there is one.
	NotAcquired func(state driver.State, cause error) error
	// Deadlocked makes the error that matches ErrDeadlock.
	Deadlocked func(cycle deadlock.Cycle) error
}

// Want is a lock that is asked for. Of its request the name and what it wants are set.
type Want struct {
	driver.Request
	Owner    *Owner        // nil: the one in the context, or a new one
	Progress time.Duration // how long its holder may say nothing; 0: as long as it likes
	AtMost   time.Duration // of waiting, for all names of a call together; 0: until its context ends
}

// Owner enters its locks again.
type Owner = ledger.Owner

// Client takes locks in one database. It is safe for concurrent use.
type Client struct {
	engine       driver.Backend // for Inquire and the reaper; transitions are the store's
	store        *store.Store
	config       Config
	ledger       *ledger.Ledger
	owners       *ledger.Owners // the ledger's
	queues       *cohort.Queues
	history      *history.History
	sessions     *store.Sessions
	transactions *tx.Transactions
	undoing      chan struct{}     // a token for each attempt that is being given back, parallelism at most
	observer     *observe.Observer // its calls are queued; nil: there is none
	reconciled   atomic.Int64      // when the latest reconciliation began, by the client's clock

	detaching, givingBack *outage.Report

	telling []*tell.Queue // the observer's, and then the logger's: the former's losses are logged

	down    chan struct{} // closed when nothing runs any more
	stuck   chan struct{} // closed when Close waits no longer for that
	failure error         // why Close could not release everything; to be read once down is closed
}

// TTL is how long the client's locks outlive its last heartbeat.
func (c *Client) TTL() time.Duration { return c.config.TTL }

// Stats is what a client knows of itself.
type Stats struct {
	Session       string    // that is alive; "": none
	AliveUntil    time.Time // when it ends without another heartbeat, by this machine's clock
	Listening     bool
	Held, Waiting int
	OldestHold    time.Duration
	EventsDropped int64
}

// NotAcquired returns an error that matches ErrNotAcquired and its cause, where the name was not
// read. A State is large: inlined it would stand on the stack of every waiter.
//
//go:noinline
func (c *Client) NotAcquired(cause error) error { return c.notAcquired(driver.State{}, cause) }

func (c *Client) notAcquired(state driver.State, cause error) error {
	return c.config.NotAcquired(state, cause)
}

// Inquire runs statements that no lock depends on, and again where a race was lost.
func (c *Client) Inquire(ctx context.Context, f func(ctx context.Context, engine driver.Backend) error) error {
	return c.store.Inquire(ctx, func(ctx context.Context) error { return f(ctx, c.engine) })
}

// CheckSchema returns why this build cannot work with the database's tables, or nil.
func (c *Client) CheckSchema(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return c.store.CheckSchema(ctx)
}
