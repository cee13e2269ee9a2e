package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/operate"
)

// Stats are the figures of a client.
type Stats struct {
	Session       string        // of the live session; "": before the first lock, in an outage, and of an idle client
	AliveUntil    time.Time     // when the session expires without another heartbeat, by this machine's clock
	Listening     bool          // a listener wakes waiters; false: the client polls, or nothing has waited yet
	Held          int           // locks and shares, each once, however often it was entered; not after UnlockTx
	Waiting       int           // attempts that wait in a queue, without candidates of an election
	Candidates    int           // candidates (package election) that wait for as long as another leads
	OldestHold    time.Duration // age of the oldest lock without the option Progress; 0: there is none
	EventsDropped int64         // events of WithEvents that were not written and will not be
}

// Stats returns the figures of the client at this moment. It does no I/O. An engine without
// sessions has Held and Waiting only.
func (c *Client[TX]) Stats() Stats {
	core, err := c.core()
	if err != nil {
		return Stats{}
	}
	return Stats(core.Stats())
}

// Ping returns nil if the client can lock now: this build can work with the tables, the database
// takes a write, and the session is alive, if there is one. Ping opens no session. It is meant for
// a readiness probe, and not for a liveness probe: a restart does not help against a database that
// is away. Ping is up to three statements over the application's pool, of which one is a heartbeat.
//
// ErrSchema, with the command to run. ErrReadOnly. ErrUnavailable, also if ctx ends first, or if a
// transaction of the application's has locked the whole database (SQLite). ErrLost if the session
// was found dead: its locks are lost, and the next Ping looks without a session. ErrConfig.
// ErrClosed. ErrInvalidOption if ctx is nil.
func (c *Client[TX]) Ping(ctx context.Context) error {
	core, err := c.core()
	if err == nil {
		err = operate.Ping(ctx, core)
	}
	if err != nil {
		return fmt.Errorf("dblock: ping: %w", err)
	}
	return nil
}
