package client

import (
	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// newQueues makes the queues of the client.
func (c *Client) newQueues() *cohort.Queues {
	return cohort.New(cohort.Config{
		Clock: c.config.Clock, Calls: c.store.Calls,
		Register: func(name, attempt string) { c.ledger.Request(name, attempt) },
		Passing:  func(attempt string) { c.ledger.Move(c.ledger.Find("", attempt), ledger.Pass) },
		Finish:   func(attempt string) { c.ledger.Move(c.ledger.Find("", attempt), ledger.Finish) },
		Abandon: func(in cohort.Session, name, attempt string, left store.Residue) {
			c.abandon(in.(*store.Session), c.ledger.Find(name, attempt), left)
		},
		Deadlocked: c.config.Deadlocked,
		GaveUp:     c.gaveUp,
	})
}

// gaveUp returns the error of a caller whose context ended while it waited. It shows the holder, if
// the caller had a place in the queue, or this client has the lock.
func (c *Client) gaveUp(in cohort.Session, name string, queued bool, cause error) error {
	if !queued && !c.ledger.Occupied(name) {
		return cause
	}
	state, known := in.Waiters().State(name)
	if !known {
		return c.config.NotAcquired(state, c.ledger.Occupied(name), cause)
	}
	return c.notAcquired(state, cause)
}
