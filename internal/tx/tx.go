package tx

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// Config has the parts of the client that transactions use.
type Config struct {
	Store    *store.Store
	Sessions *store.Sessions
	Ledger   *ledger.Ledger
	Leases   Leases
}

// Leases is the client as LockTx calls it.
type Leases interface {
	// Acquire waits for the lease of a transaction.
	Acquire(ctx context.Context, name string) (*ledger.Claim, error)
	// Refuse makes ErrNotAcquired.
	Refuse(state driver.State, cause error) error
	// SelfDeadlock makes the error of an owner that would wait for a lock of its own.
	SelfDeadlock(o ledger.Owner, name string) error
}

// Transactions works inside the transactions of an application.
type Transactions struct{ Config }

// New makes the Transactions of a client.
func New(config Config) *Transactions { return &Transactions{config} }

// inside runs a step of a claim in the caller's transaction, unless the claim is known to have
// ended. Close ends the context of the step.
func (t *Transactions) inside(ctx context.Context, c *ledger.Claim, step func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return store.Ended(ctx, err)
	}
	if err := c.Over(); err != nil {
		return err
	}
	if err := t.Store.Begin(); err != nil {
		return err
	}
	defer t.Store.Done()
	within, cancel := contract.UntilClosed(ctx, t.Store.Background)
	defer cancel()
	err := step(within)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrNotHeld):
		if t.Ledger.Relies(c) { // after UnlockTx, it is not known whether this transaction released the lock
			t.Ledger.Lose(ctx, err, c)
		}
		if over := t.Ledger.Unusable(c); over != ledger.ErrReleasedTx {
			return over
		}
		return fmt.Errorf("%w: UnlockTx has released it, unless it was lost after a rollback", driver.ErrNotHeld)
	// The end of within may have closed the side connection. The transaction can go on.
	case t.Store.Closing() && ctx.Err() == nil && within.Err() != nil &&
		(errors.Is(err, within.Err()) || errors.Is(err, driver.ErrUnavailable)):
		return contract.ErrClosed
	case !c.Grant.In.Alive(): // the session ended while the step was in flight
		return contract.Lost(driver.Join(context.Cause(c.Grant.In.Context()), err))
	}
	return t.explain(ctx, err)
}

// explainTimeout bounds the look at the tables for an error that does not find them.
const explainTimeout = time.Second

// explain adds to an error of the caller's transaction the facts that only such a transaction has.
// To ErrSchema it adds the difference of the tables, or that only the transaction does not find
// them.
func (t *Transactions) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, driver.ErrReadOnly):
		return fmt.Errorf("the transaction is read-only: begin it without READ ONLY; if it was begun without, %w", err)
	case errors.Is(err, sqldriver.ErrBadConn):
		// MySQL's driver says only that for open rows, and that of PostgreSQL for some statements.
		return fmt.Errorf("a connection broke, perhaps since rows of the transaction are still open: close them "+
			"first: %w", err)
	case !errors.Is(err, driver.ErrSchema):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	if which := t.Store.Explain(ctx, err); which != err {
		return which
	}
	if t.Store.CheckSchema(ctx) != nil { // it could not be asked
		return err
	}
	return fmt.Errorf("%w; the client itself finds the tables: the transaction is of another database", err)
}

// elsewhere returns ErrConfig if a transaction is of another database than the client's: neither
// its answers nor its locks count here. is identifies the transaction's database, "" if that is not
// known. Then the transaction is asked, but only after an error that another database would
// explain: on MySQL the question may give the transaction its snapshot.
func (t *Transactions) elsewhere(ctx context.Context, in driver.Tx, is string, err error) error {
	if errors.Is(err, driver.ErrRolledBack) {
		return nil
	}
	if is == "" && (errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrRetry)) {
		is, _ = in.Database(ctx) // without an answer, err is returned
	}
	if is == "" {
		return nil
	}
	mine := t.Store.Database(ctx, false)
	if mine != "" && mine != is {
		mine = t.Store.Database(ctx, true) // the tables may have been made anew meanwhile
	}
	if mine == "" || mine == is {
		return nil
	}
	return fmt.Errorf("%w: the transaction is of another database than the client's, which has dblock's tables, too",
		driver.ErrConfig)
}

// fix keeps the mode of a lock as it is until done is called, since another mode would look like a
// loss. It makes the claim the only one that the lock is for, unless the transaction may be in the
// way of that: then the engine uses the token of the grant.
func (t *Transactions) fix(ctx context.Context, c *ledger.Claim, in driver.Tx) (done func(), err error) {
	within, cancel := c.Within(ctx)
	defer cancel()
	for {
		if !in.Exclusive() || c.Grant.Mode.Load().Vague() {
			if err := t.Ledger.Ascertain(within, c); err != nil {
				return nil, cmp.Or(c.Over(), err)
			}
		}
		if err := store.LockWithin(within, c.Grant.Mode.TryRLock); err != nil {
			return nil, err
		}
		if !c.Grant.Mode.Load().Vague() {
			return c.Grant.Mode.RUnlock, nil
		}
		c.Grant.Mode.RUnlock() // the mode became unknown meanwhile
	}
}
