package client

import (
	"errors"

	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// newQueues makes the queues of the client.
func (c *Client) newQueues() *cohort.Queues {
	return cohort.New(cohort.Config{
		Clock: c.config.Clock, Closing: c.store.Background, Tidying: c.store.Tidying, Go: c.store.Go,
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
	state, _ := in.Waiters().State(name)
	return c.notAcquired(state, cause)
}

// split makes the member of a cohort that has the lock its only holder in the database. The channel
// is closed once that has succeeded or failed. nil: the member is the only holder already, or has
// the lock no more.
func (c *Client) split(h *ledger.Hold) <-chan struct{} {
	if !h.Member.InOpenCohort() {
		return nil
	}
	return h.Member.Split(func(d driver.Detachment) bool { return c.detach(h, d) })
}

// detach sends the detachment of a member until its outcome is known. It returns false if the
// members behind are not in the queue.
func (c *Client) detach(h *ledger.Hold, d driver.Detachment) (inQueue bool) {
	held := h.Held()
	within, cancel := contract.UntilClosed(c.store.Tidying, h.In.Context())
	defer cancel()
	return c.store.Retry(within, store.Undoing, func() error {
		_, err := h.In.Do(c.store.Tidying, protocol.Detach{Held: held, Member: d})
		switch {
		case err == nil:
			c.detaching.Worked()
			m := *h.Mode.Load()
			m.Last = m.Token
			h.Mode.Store(&m)
		case errors.Is(err, driver.ErrNotHeld):
			c.ledger.Lose(errDisowned, h)
			return nil // a transaction may have detached it, too
		case !c.store.Transient(err) && within.Err() == nil:
			c.detaching.Failed(err, "name", h.Name)
		}
		return err
	}) == nil
}
