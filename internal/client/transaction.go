package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/tx"
	"github.com/dblock-go/dblock/observe"
)

// newTransactions makes the client's part in the application's transactions.
func (c *Client) newTransactions() *tx.Transactions {
	return tx.New(tx.Config{
		Store: c.store, Sessions: c.sessions, Ledger: c.ledger, Settle: c.settle, Leave: c.leave,
		Acquire: func(ctx context.Context, name string) (*ledger.Hold, error) {
			return c.acquire(ctx, &protocol.Request{Name: name}, c.owners.Private(ctx), true)
		},
		Abandon:  func(s *store.Session, k *ledger.Attempt) { c.abandon(s, k, store.Something) },
		Refuse:   c.notAcquired,
		Deadlock: func(o ledger.Owner, name string) error { return c.selfDeadlock(o, name, 0) },
	})
}

// Guard lets a transaction write only while the client holds all these locks. With an error it
// returns the name that failed.
func (c *Client) Guard(ctx context.Context, in driver.Tx, locks ...*Lock) (failed string, err error) {
	holds, failed, err := c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	return c.transactions.Guard(ctx, in, holds)
}

// UnlockTx releases locks with the commit of a transaction. With an error it returns the name that
// failed. The transaction may have released the locks before that one.
func (c *Client) UnlockTx(ctx context.Context, in driver.Tx, locks ...*Lock) (failed string, err error) {
	holds, failed, err := c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	return c.transactions.UnlockTx(ctx, in, holds)
}

// ofTx validates the locks of a call, before any I/O. It returns their holds in the order of the
// names, each once: transactions that release shares of several names must not wait for each other.
func (c *Client) ofTx(locks []*Lock) (holds []*ledger.Hold, failed string, err error) {
	if len(locks) == 0 {
		return nil, "", fmt.Errorf("%w: no locks", ErrInvalidOption)
	}
	for _, l := range locks {
		switch {
		case !l.Valid():
			return nil, "", ErrNilLock
		case l.client != c:
			return nil, l.Name(), fmt.Errorf("%w: the lock is of another client", ErrInvalidOption)
		}
		holds = append(holds, l.hold)
	}
	slices.SortStableFunc(holds, func(a, b *ledger.Hold) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(holds), "", nil
}

// LockTx takes names inside a transaction, in the order given, and returns the one that failed.
func (c *Client) LockTx(ctx context.Context, names []string, wait bool, in driver.Tx) (failed string, err error) {
	if err := c.store.Begin(); err != nil {
		return names[0], err
	}
	defer c.store.Done()
	for _, name := range names {
		within, obs := c.tellStart(ctx, observe.Attempt{Name: name, Wait: wait})
		err := c.transactions.LockTx(within, in, name, wait)
		obs.end(0, err)
		if err != nil {
			return name, err
		}
	}
	return "", nil
}
