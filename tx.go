package dblock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// UnlockTx releases the lock together with a transaction of the application's on the same database:
// that it is free, or the next waiter's, becomes visible if and only if the transaction commits.
// After a rollback the lock is held as before.
//
// From the commit on others may have the lock: do nothing under it between UnlockTx and the commit
// but what belongs to the transaction. Context stays live until Unlock is called, or until the
// client has learned of the commit (within a TTL), so that a transaction that was begun under it
// can end. Unlock after the transaction is good manners, and on MySQL and MariaDB, where nothing
// else tells of the commit, it is what wakes the next waiter at once; otherwise that one notices
// within a third of its TTL.
//
// ErrLost as Guard, which UnlockTx includes. ErrUnsupported on locks without tables, and where the
// lock was entered several times: only the last entry can be given back so.
func (l *Lock[TX]) UnlockTx(ctx context.Context, tx TX) error {
	return l.inside(ctx, "unlocktx", tx, func() error {
		h := l.hold
		h.mu.Lock()
		count := h.count
		h.mu.Unlock() // before the database is asked: Unlock must not wait for that past its context
		if count > 1 {
			return fmt.Errorf("%w: the lock was entered %d times: UnlockTx gives back the last entry only", ErrUnsupported, count)
		}
		done, err := l.rely(ctx)
		if err != nil {
			return err
		}
		defer done()
		settle := h.leaving.begin() // first: from the commit on, to find it released is no loss
		err = l.client.engine.Transactions.ReleaseTx(ctx, tx, h.held(), l.aside)
		settle(err)
		return err
	})
}

// inside runs a step of a lock in the caller's transaction, unless the lock is known not to be
// held.
func (l *Lock[TX]) inside(ctx context.Context, op string, tx TX, step func() error) error {
	fail := func(err error) error { return &LockError{op, l.hold.name, err} }
	if err := checkTx(ctx, tx); err != nil {
		return fail(err)
	}
	if l.client.engine.Transactions == nil || l.hold.native != nil {
		return fail(fmt.Errorf("%w: the lock has no row and no token that a transaction could check", ErrUnsupported))
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	switch cause := context.Cause(l.hold.ctx); {
	case errors.Is(cause, ErrLost):
		return fail(errors.Unwrap(cause))
	case cause != nil:
		return fail(cause)
	}
	if err := l.client.begin(); err != nil {
		return fail(err)
	}
	defer l.client.calls.Done()
	err := step()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrNotHeld):
		if !l.hold.leaving.possible() {
			l.client.lose(l.hold, err)
		}
		return fail(lost(err))
	case !l.hold.life.Alive(): // it ended while the step was at work
		return fail(lost(errors.Join(context.Cause(l.hold.life.Context()), err)))
	}
	return fail(err)
}

// rely keeps what the lock is as it is, until done is called: that it is held as something else by
// now would look like a loss.
func (l *Lock[TX]) rely(ctx context.Context) (done func(), err error) {
	h := l.hold
	for {
		if err := l.client.sure(ctx, h); err != nil {
			return nil, err
		}
		if err := acquire(ctx, h.grade.TryRLock); err != nil {
			return nil, err
		}
		if !h.vague.Load() {
			return h.grade.RUnlock, nil
		}
		h.grade.RUnlock() // it became so meanwhile
	}
}

// aside is the reserved connection of the session that has the lock: of no other, since that would
// not be a loss.
func (l *Lock[TX]) aside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return l.client.statement(ctx, func(ctx context.Context) error { return l.hold.life.Aside(ctx, do) })
}

func checkTx(ctx context.Context, tx any) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil", ErrInvalidOption)
	}
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: the transaction is nil", ErrInvalidOption)
	}
	return nil
}

// LockTx takes the lock inside a transaction of the application's on the same database, and holds
// it until that ends, whichever way, or until it is rolled back to a savepoint from before: there
// is nothing to unlock. A name is one lock however it is taken: LockTx excludes LockTx and Lock,
// and Lock excludes LockTx. It needs no heartbeat and no token: the transaction that writes is the
// one that holds.
//
// It waits until ctx ends, for other transactions in the order that the database has (over
// database/sql on PostgreSQL, in turns of a little more than deadlock_timeout), and for a lease in
// its queue, like any Lock; for that it needs a connection of the pool for a moment, and the lease
// that it is then granted stands behind the transaction until that ends. The connection of the
// transaction is of course busy all the while.
//
// ErrNotAcquired when ctx ends; the transaction stays usable. Options: Also, for several names;
// Shared, with postgres.Advisory. Names that were locked before the one that failed stay locked
// with the transaction. Errors of the database for a serialization failure or a deadlock mean that
// the transaction has to be run again. On PostgreSQL at REPEATABLE READ and above that is so
// whenever somebody had the lock as a lease, or made its row, after the transaction's snapshot:
// there, call LockTx first and be ready to run the transaction again.
//
// A transaction that comes after a queued lease does not pass it: it queues behind. Transactions
// that waited for the row before the lease was queued may still come first.
//
// Deadlocks: a ring of waiters in which every edge is a lease is found by WithDeadlockCheck, if ctx
// is under the Context of what its owner holds: the waiter that joined last gets ErrDeadlock, and
// its transaction stays usable. A ring in which every edge is a row that a transaction has locked
// is found by the database, which ends one transaction (an error that means to run it again). A
// ring of both kinds is found by neither: a request for a lease on a row that a transaction has
// locked asks again and again, and waits in no place that the server or dblock could see. Only a
// context that ends breaks such a ring, or the end of a transaction (PostgreSQL:
// transaction_timeout, idle_in_transaction_session_timeout). Name all locks in one call, and give
// ctx a deadline.
//
// On MySQL and MariaDB a row lock cannot be given back before the transaction ends: where somebody
// takes the lease in the very moment between LockTx looking and locking, it says so, and the
// transaction must be rolled back. On SQLite the transaction locks the whole database from LockTx
// on: call it first, in a transaction that has neither read nor written, and it waits its turn like
// anywhere else; in one that has already written (BEGIN IMMEDIATE, or after a first name) nobody
// can give a lease back, so that it waits until ctx ends. Where a lease is taken between LockTx
// looking and locking, or the pool has no second connection to look with, it says so, as on MySQL.
func (c *Client[TX]) LockTx(ctx context.Context, tx TX, name string, options ...LockOption) error {
	return c.acquireTx(ctx, "locktx", tx, name, options, true)
}

// TryLockTx is LockTx without waiting: ErrNotAcquired at once, where possible with the holder of
// the lock, and the transaction as it was; on SQLite it may have locked the database.
func (c *Client[TX]) TryLockTx(ctx context.Context, tx TX, name string, options ...LockOption) error {
	return c.acquireTx(ctx, "trylocktx", tx, name, options, false)
}

func (c *Client[TX]) acquireTx(ctx context.Context, op string, tx TX, name string, options []LockOption, wait bool) error {
	names, config, err := txNames(name, options)
	if err == nil {
		err = checkTx(ctx, tx)
	}
	switch {
	case err != nil:
	case c.keeper == nil && config.shared():
		err = fmt.Errorf("%w: LockTx takes a name in a table as a whole", ErrUnsupported)
	case c.keeper == nil && c.engine.Transactions == nil:
		err = fmt.Errorf("%w: this engine has no locks inside transactions", ErrUnsupported)
	default:
		err = c.begin()
	}
	if err != nil {
		return &LockError{op, name, err}
	}
	defer c.calls.Done()
	for _, name := range names {
		if c.keeper != nil {
			err = c.lockTxNative(ctx, tx, name, config.shared(), wait)
		} else {
			err = c.lockTx(ctx, tx, name, wait)
		}
		if err != nil {
			return &LockError{op, name, err}
		}
	}
	return nil
}

// txNames returns the names of one call in the order in which they are locked.
func txNames(name string, options []LockOption) ([]string, lockConfig, error) {
	config, _, err := lockConfigOf(name, options)
	if err != nil {
		return nil, config, err
	}
	if config.owner != nil || config.leased || config.metadata != nil || config.rests || config.permits || config.each != nil {
		return nil, config, fmt.Errorf("%w: Owner, Lease, MinHold, Permits, Metadata and For are for leases", ErrInvalidOption)
	}
	names := append([]string{name}, config.also...)
	for _, also := range config.also {
		if err := checkText(also); err != nil {
			return nil, config, fmt.Errorf("%w: Also: %w", ErrInvalidName, err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), config, nil
}

func (c *Client[TX]) lockTxNative(ctx context.Context, tx TX, name string, shared, wait bool) error {
	locked, err := c.keeper.LockTx(ctx, tx, name, shared, wait)
	switch {
	case err != nil && ctx.Err() != nil && !wait:
		return c.unseen(ctx, err)
	case err != nil && ctx.Err() != nil:
		return notAcquired(driver.State{}, ended(ctx, err))
	case err != nil:
		return err
	case !locked:
		return notAcquired(driver.State{}, nil)
	}
	return nil
}

// lockTx locks the name's row if no lease stands in the way; else it waits its turn for a lease of
// its own.
func (c *Client[TX]) lockTx(ctx context.Context, tx TX, name string, wait bool) error {
	for {
		state, locked, err := c.lockRow(ctx, tx, name, "", wait)
		switch {
		case err != nil || locked:
			return err
		case !wait:
			return notAcquired(state, nil)
		}
		h, err := c.obtain(ctx, driver.Request{Name: name, Wait: true}, errandOf(ctx, c, c.config.host), true)
		if err != nil {
			return err
		}
		c.lend(h)
		_, locked, err = c.lockRow(ctx, tx, name, h.attempt, wait)
		if locked {
			c.standBehind(h)
			return nil
		}
		c.abandon(h.life, h.name, h.attempt, false)
		if err != nil {
			return err
		}
	}
}

// lockRow locks the name's row. turn is the attempt of the lease that was granted for it, "" for
// none.
func (c *Client[TX]) lockRow(ctx context.Context, tx TX, name, turn string, wait bool) (driver.State, bool, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.background, func() { cancel(ErrClosed) })()
	mine, err := c.attemptOf(ctx, name)
	if err != nil {
		return driver.State{}, false, err
	}
	state, locked, err := c.engine.Transactions.LockTx(within, tx, name, c.passing(mine, turn), wait, c.aside)
	switch {
	case err == nil:
		return state, locked, nil
	case c.background.Err() != nil:
		return state, false, ErrClosed
	case errors.Is(err, driver.ErrRetry): // also where ctx has ended: the engine may have ended the transaction
		return state, false, err
	case ctx.Err() != nil && !wait: // it would have said so, had it seen a holder
		return state, false, c.unseen(ctx, err)
	case ctx.Err() != nil:
		return state, false, notAcquired(state, ended(ctx, err))
	case errors.Is(err, ErrSchema):
		if which := c.checkSchema(ctx); which != nil {
			return state, false, which
		}
	}
	return state, false, err
}

// aside is the reserved connection of the session that is alive now; of the next one, if that
// session ends meanwhile.
func (c *Client[TX]) aside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	for {
		var l *life
		err := c.statement(ctx, func(ctx context.Context) (err error) {
			if l, err = c.living(ctx); err != nil {
				return err
			}
			return l.Aside(ctx, do)
		})
		if err == nil || l == nil || l.Alive() || ctx.Err() != nil || c.background.Err() != nil {
			return err
		}
	}
}

// attemptOf is the attempt with which the owner in ctx holds a name, "" if it does not: its own
// lease is no obstacle. A share of its own would be one for ever.
func (c *Client[TX]) attemptOf(ctx context.Context, name string) (string, error) {
	o, ok := ctx.Value(ownerKey{c}).(owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.books.owners[gateKey{name, o}]
	switch {
	case ok && c.books.units(ctx, name, o) > 0:
		return "", fmt.Errorf("%w: it has permits of the name: unlock first", selfDeadlock(o, name, 0))
	case !ok || h == nil:
		return "", nil
	case h.standing.Load().shared():
		return "", fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", selfDeadlock(o, name, 0))
	}
	return h.attempt, nil
}

// passing tells one LockTx which leases its transaction may pass: the one that the owner in its
// context has, the one that was granted for it, and those that stand behind this transaction
// already. A lease that stands behind another transaction of this client may be passed only while
// nobody waits for the name: a transaction that comes later than a ticket must not go before it.
// The transaction that passed such a lease to wait for the row was there before any ticket that it
// meets then.
func (c *Client[TX]) passing(mine, turn string) driver.Pass {
	var passed string
	return func(attempt string, waiters int, tx any) bool {
		if attempt == "" || attempt != mine && attempt != passed && !c.mayPass(attempt, turn, waiters, tx) {
			return false
		}
		passed = attempt
		return true
	}
}

// mayPass notes behind which transaction a lease stands that was granted for it.
func (c *Client[TX]) mayPass(attempt, turn string, waiters int, tx any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, lent := c.lent[attempt]
	if lent && attempt == turn {
		c.lent[attempt] = tx
		return true
	}
	return lent && (waiters == 0 || before == tx)
}

// lend takes a lease off the books and keeps it: nobody unlocks it, and nobody of this client waits
// for it.
func (c *Client[TX]) lend(h *hold) {
	c.mu.Lock()
	c.lent[h.attempt] = nil // until its transaction has the row
	c.mu.Unlock()
	c.drop(h, fmt.Errorf("%w: it stands behind a transaction", ErrNotHeld))
}

// standBehind gives a lease back once the transaction that has locked its row has ended. Nobody
// tells: the row is asked for, with growing pauses, until it is free. If the client is closed or
// its session dies first, the lease ends with the session, and its next holder meets the same
// row lock.
func (c *Client[TX]) standBehind(h *hold) {
	c.calls.Go(func() {
		defer c.unclaim(h.attempt)
		for wait := time.Millisecond; h.life.Context().Err() == nil; wait = min(2*wait, 250*time.Millisecond) {
			pause(c.background, wait)
			asked := c.config.clock()
			var next []driver.Handoff
			err := c.statement(c.tidying, func(ctx context.Context) (err error) {
				next, err = c.engine.Leave(ctx, h.life.ID, h.name, h.attempt)
				return err
			})
			h.life.hand(h.name, next, asked, err)
			if err == nil || !transient(err) || c.background.Err() != nil {
				return
			}
		}
	})
}

// promote hands on a name that UnlockTx left free with a queue, where the engine does it so. It is
// a hint like any wake-up: a waiter that hears nothing does it itself.
func (c *Client[TX]) promote(ctx context.Context, h *hold) {
	_, err := c.reclaim(ctx, h.life, h.name, driver.Holder{})
	if err != nil && !transient(err) {
		c.config.log.Warn("dblock: handing on after UnlockTx failed", "name", h.name, "error", err)
	}
}
