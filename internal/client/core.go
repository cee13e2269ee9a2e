package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/internal/tx"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/reaper"
)

// Config configures a client. Package dblock documents the options.
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
	Crash     crash.Setting

	// Closing limits how long Close works; 0: contract.CloseTimeout. For tests.
	Closing time.Duration

	// Opened is called with each session that is opened. It returns the function that is called
	// when all locks of the session are lost. nil: nothing is called. For tests that move the
	// clock.
	Opened func(s *session.Session) (lost func())

	// NotAcquired makes the error that matches ErrNotAcquired, and cause if that is not nil. own
	// reports that the client itself has the whole name.
	NotAcquired func(state driver.State, own bool, cause error) error
	// Deadlocked makes the error that matches ErrDeadlock.
	Deadlocked func(cycle deadlock.Cycle) error
}

// Want is a request for a lock. Acquire completes the request with the session and the attempt.
type Want struct {
	protocol.Request
	Owner    *Owner        // nil: the one in the context, or a new one
	Progress time.Duration // the longest time between two calls of Progress; 0: not watched
	AtMost   time.Duration // limits the wait, for all names of a call together; 0: only the context does

	Unrecorded bool // the grant and the release are no events: the caller records what it does under the lock
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
	report       reporter
	sessions     *store.Sessions
	transactions *tx.Transactions
	reconciled   atomic.Int64 // when the latest reconciliation began, by the client's clock

	telling []*tell.Queue // the observer's, then the logger's: the log counts the calls that the observer lost

	down    chan struct{} // closed when nothing of the client runs any more
	stuck   chan struct{} // closed when Close stops waiting for down
	failure error         // why Close could not release everything; to be read once down is closed
}

// TTL returns how long the client's locks outlive its last heartbeat.
func (c *Client) TTL() time.Duration { return c.config.TTL }

// Life returns the file by which others on this host see that the process of the client's session
// lives: a child that inherits it keeps the session's locks from them, until its TTL. nil where
// there is none.
func (c *Client) Life() *os.File {
	if s := c.sessions.Alive(); s != nil {
		return s.Life.File()
	}
	return nil
}

// Stats are the figures of a client.
type Stats struct {
	Session       string    // of the session that is alive; "": there is none
	AliveUntil    time.Time // when the session ends without another heartbeat, by this machine's clock
	Listening     bool
	Held, Waiting int
	Candidates    int
	OldestHold    time.Duration
	EventsDropped int64
}

// NotAcquired returns an error that matches ErrNotAcquired and its cause, where the name was not
// read. A State is large: if this method were inlined, every waiter's stack would have one.
//
//go:noinline
func (c *Client) NotAcquired(cause error) error { return c.notAcquired(driver.State{}, cause) }

func (c *Client) notAcquired(state driver.State, cause error) error {
	own := state.Sharing == 0 && c.ledger.HeldBy(state.Holder.Attempt) != nil
	return c.config.NotAcquired(state, own, cause)
}

// ErrNone: a call of a dblock.Client that is nil or zero, or of what was made of one.
var ErrNone = fmt.Errorf("%w: the client is nil, or was not made by New", contract.ErrInvalidOption)

// Inquire runs statements that no lock depends on, and retries them after a lost race. ErrNone for
// a nil client.
func (c *Client) Inquire(ctx context.Context, f func(ctx context.Context, engine driver.Backend) error) error {
	if c == nil {
		return ErrNone
	}
	return c.store.Inquire(ctx, func(ctx context.Context) error { return f(ctx, c.engine) })
}

// CheckSchema returns the reason why this build cannot work with the database's tables, or nil.
func (c *Client) CheckSchema(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return c.store.CheckSchema(ctx)
}
