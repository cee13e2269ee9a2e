package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/observe"
)

// Guard lets a transaction write only while the client holds all these locks. With an error it
// returns the name that failed.
func (c *Client) Guard(ctx context.Context, in driver.Tx, locks ...*Lock) (failed string, err error) {
	claims, failed, err := c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	return c.transactions.Guard(ctx, in, claims)
}

// UnlockTx releases locks with the commit of a transaction. With an error it returns the name that
// failed. The transaction may have released the locks before that one.
func (c *Client) UnlockTx(ctx context.Context, in driver.Tx, locks ...*Lock) (failed string, err error) {
	claims, failed, err := c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	return c.transactions.UnlockTx(ctx, in, claims)
}

// ofTx validates the locks of a call, before any I/O. It returns their claims in the order of the
// names, each once: transactions that release shares of several names must not wait for each other.
func (c *Client) ofTx(locks []*Lock) (claims []*ledger.Claim, failed string, err error) {
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
		claims = append(claims, l.claim)
	}
	slices.SortStableFunc(claims, func(a, b *ledger.Claim) int {
		return strings.Compare(a.Request.Name, b.Request.Name)
	})
	return slices.Compact(claims), "", nil
}

// LockTx takes names inside a transaction, in the order given, and returns the one that failed.
func (c *Client) LockTx(ctx context.Context, names []string, wait bool, in driver.Tx) (failed string, err error) {
	if err := c.store.Begin(); err != nil {
		return names[0], err
	}
	defer c.store.Done()
	for _, name := range names {
		within, obs := c.report.start(ctx, observe.Attempt{Name: name, Wait: wait})
		err := c.transactions.LockTx(within, in, name, wait)
		obs.end(0, err)
		if err != nil {
			return name, err
		}
	}
	return "", nil
}
