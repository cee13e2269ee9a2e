package dblock

import (
	"context"
	"fmt"
	"time"
)

// Stats is what a client knows of itself.
type Stats struct {
	Session       string        // that is alive; "": none, before the first lock, while the database is away, and of an idle client
	AliveUntil    time.Time     // when the session ends if no heartbeat succeeds any more, by this machine's clock
	Listening     bool          // waiters are woken by a listener; false: the client polls, or nothing has waited yet
	Held          int           // locks and shares, each counted once, however often it was entered; not after UnlockTx
	Waiting       int           // attempts that wait in a queue
	OldestHold    time.Duration // for how long the oldest lock has been held that is without the option Progress; 0: there is none
	EventsDropped int64         // events of WithEvents that were not written and will not be
}

// Stats returns what the client knows of itself, at this moment. It does no I/O. An engine without
// sessions has Held and Waiting only.
func (c *Client[TX]) Stats() Stats { return Stats(c.Core().Stats()) }

// Ping returns nil if the client can lock now: the tables are those that this build can work with,
// the database takes a write, and the session is alive, if there is one. It opens none. It is meant
// for a readiness probe; for a liveness probe it is none, since a restart does not help against a
// database that is away.
//
// It is up to three statements over the application's pool, of which one is a heartbeat. With the
// server's own locks it takes and releases a name of its own, on the connection that keeps them.
//
// ErrSchema, saying what to run. ErrReadOnly. ErrUnavailable, also when ctx ends first, or a
// transaction of the application's has locked the whole database (SQLite). ErrLost where the
// session was found dead: the locks are lost, and the next Ping looks without a session. ErrConfig.
// ErrClosed. ErrInvalidOption where ctx is nil.
func (c *Client[TX]) Ping(ctx context.Context) error {
	if err := c.Core().Ping(ctx); err != nil {
		return fmt.Errorf("dblock: ping: %w", err)
	}
	return nil
}
