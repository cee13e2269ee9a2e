package dblock

import (
	"context"
	"fmt"
	"reflect"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// Guard lets only the holder of the locks write in a transaction of the application's on the same
// database. It returns nil only if all locks are held. Once it has returned nil, no takeover of
// these locks can commit before the transaction ends, however long this process is suspended.
// Writes from before Guard are guarded, too. A takeover does not wait for the transaction: it is
// retried later.
//
// The locks are guarded in the order of the bytes of their names. An error names the lock that
// failed. A guard protects its own lock alone. It ends with the transaction, and with a rollback to
// a savepoint from before Guard (not on MySQL and MariaDB). The holder itself can still give the
// lock away by Unlock, Close or Downgrade: call these after the transaction has ended, or call
// UnlockTx in it.
//
// ErrLost if a lock was lost, ErrNotHeld after its Unlock or UnlockTx: roll back. ErrRetry, which
// is a serialization failure (SQLSTATE 40001, error 1213 of MySQL, 1020 of MariaDB): roll back, and
// run the transaction again. ErrInvalidOption without a lock, and for a lock of another client.
// After any error a transaction on PostgreSQL is as usable as before. On MySQL a deadlock has ended
// the transaction: any further call in it is ErrTxDone. docs/transactions.md has the cost, the
// isolation levels and the differences between engines.
func (c *Client[TX]) Guard(ctx context.Context, tx TX, locks ...*Lock) error {
	return c.inside(ctx, "guard", tx, locks, (*client.Client).Guard)
}

// UnlockTx releases locks with a transaction of the application's on the same database: others see
// the release if and only if the transaction commits. After a rollback the locks are held as
// before. Their order is that of Guard. If one of several fails, the error names it, and the
// transaction may have released those before it: roll back.
//
// From the commit on others may hold the lock. Between UnlockTx and the commit, do only the
// transaction's own work under the lock. Call Unlock after the commit: on MySQL and MariaDB it
// wakes the next waiter, which otherwise notices the release within a third of its TTL. Context,
// and that of a function given to Do, stays live until Unlock or the function's return, so that
// Commit may use it. It ends at the latest a TTL after the client has learned of the commit.
//
// From UnlockTx on the client does not rely on the lock. A Lock of the same owner waits as any
// other. Until returns the zero time, and Progress is not watched. Downgrade, TryUpgrade, Extend
// and Detach return ErrNotHeld. After a rollback call Guard, which makes the lock as usable as
// before, or Unlock. If the database does not have the lock, Guard and another UnlockTx return
// ErrNotHeld: the transaction was committed, or the lock was lost after a rollback. Guard also
// returns it, together with ErrBusy, while the transaction is open.
//
// ErrLost and others as Guard, which UnlockTx includes. ErrBusy if the lock guards another
// transaction that is open, even if its COMMIT is in flight: end that transaction first, or call
// Unlock after this one. The lock is held as before. ErrUnsupported if the lock was entered several
// times. ErrClosed if the client is closed while UnlockTx waits: the transaction can go on.
//
// On PostgreSQL, PREPARE TRANSACTION fails after UnlockTx if a client waits for the lock. In a
// two-phase commit call Guard, and Unlock after COMMIT PREPARED.
func (c *Client[TX]) UnlockTx(ctx context.Context, tx TX, locks ...*Lock) error {
	return c.inside(ctx, "unlocktx", tx, locks, (*client.Client).UnlockTx)
}

// inside runs do on locks, in a transaction. The error names the operation and the lock.
func (c *Client[TX]) inside(
	ctx context.Context, op string, tx TX, locks []*Lock,
	do func(c *client.Client, ctx context.Context, tx driver.Tx, locks ...*client.Lock) (failed string, err error),
) error {
	cores := make([]*client.Lock, len(locks))
	for i, l := range locks {
		cores[i] = l.core()
	}
	failed := ""
	if len(cores) > 0 && cores[0].Valid() {
		failed = cores[0].Name()
	}
	core, in, err := c.driverTx(ctx, tx)
	if err == nil {
		failed, err = do(core, ctx, in, cores...)
	}
	return fail(op, failed, err)
}

// LockTx takes names inside a transaction of the application's on the same database. The
// transaction holds them until it ends, or is rolled back to a savepoint from before LockTx.
// Nothing has to be unlocked, and there is no token. LockTx and Lock exclude each other on the same
// name.
//
// LockTx waits until ctx ends, for other transactions and for leases. It waits for a lease in the
// queue of the name, as Lock does, and needs a connection of the pool for a moment. The connection
// of the transaction is busy while LockTx waits. ctx may be the context of BeginTx. If only that
// context ends, and not ctx, the error is ErrTxDone.
//
// Several names are locked in the order of their bytes, so that two transactions that want the same
// names cannot wait for each other. Names before the one that failed stay locked. Name all locks in
// one call, and give ctx a deadline: nothing detects a cycle of waiters in which one waits for a
// lease and another one for a row.
//
// ErrNotAcquired when ctx ends: the transaction stays usable. ErrInvalidOption without a name.
// ErrDeadlock as Lock, if ctx is under the Context of a lock. ErrRetry for a serialization failure
// or a deadlock of the database: roll back, and run the transaction again. docs/transactions.md has
// the order in which transactions wait, and the differences between engines.
func (c *Client[TX]) LockTx(ctx context.Context, tx TX, names ...string) error {
	return c.lockTx(ctx, "locktx", tx, names, true)
}

// TryLockTx is LockTx without waiting for the lock. It returns ErrNotAcquired, with the holder of
// the lock where it is known. The transaction stays as it was. On SQLite it may have locked the
// database. On MariaDB with innodb_rollback_on_timeout it waits for up to half a second for a row
// that is locked.
func (c *Client[TX]) TryLockTx(ctx context.Context, tx TX, names ...string) error {
	return c.lockTx(ctx, "trylocktx", tx, names, false)
}

func (c *Client[TX]) lockTx(ctx context.Context, op string, tx TX, names []string, wait bool) error {
	failed := ""
	if len(names) > 0 {
		failed = names[0]
	}
	names, err := contract.NamesOfTx(names)
	var core *client.Client
	var in driver.Tx
	if err == nil {
		core, in, err = c.driverTx(ctx, tx)
	}
	if err == nil {
		failed, err = core.LockTx(ctx, names, wait, in)
	}
	return fail(op, failed, err)
}

// driverTx returns the client inside, and the transaction in the form that it needs.
func (c *Client[TX]) driverTx(ctx context.Context, tx TX) (*client.Client, driver.Tx, error) {
	core, err := c.core()
	if err == nil && ctx == nil {
		err = contract.ErrNilContext
	}
	if err != nil {
		return nil, nil, err
	}
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, nil, fmt.Errorf("%w: the transaction is nil", ErrInvalidOption)
	}
	if c.in == nil {
		return nil, nil, fmt.Errorf("%w: this engine has no locks inside transactions", ErrUnsupported)
	}
	return core, c.in(tx), nil
}
