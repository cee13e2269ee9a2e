package dblock

import (
	"context"
	"fmt"
	"reflect"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// Guard makes sure, inside a transaction of the application's on the same database, that what it
// writes is written by the holder of the locks: it returns ErrLost unless all of them are held at
// that moment, and from then until the transaction ends no takeover of one can commit, however long
// the holder is stopped. Takeovers do not wait for the transaction; they are retried later. Writes
// before Guard are guarded as well, if it is called before the commit.
//
// The locks are those of this client: ErrInvalidOption for another's, and without a lock. They are
// guarded in the order of the bytes of their names. An error names the lock that failed. The guards
// of those before it stay until the transaction ends.
//
// A guard is of its lock alone: takeovers of other locks of the client go on beside it. It ends
// with the transaction, and with a rollback to a savepoint from before Guard: then the transaction
// is not guarded any more, and Guard has to be called again. On MySQL and MariaDB it outlives such
// a rollback.
//
// It is one or two statements. The first Guard of a lock also writes a row, in a transaction of
// dblock's own, which the reaper deletes when the lock is over. Heartbeats, waiters that queue up
// and TryLock neither wait for Guard nor it for them. On SQLite the transaction locks the whole
// database, as with any write.
//
// The holder itself can still give the lock away, by Unlock and by Close, and let readers in by
// Downgrade: call them after the transaction has ended, or UnlockTx in it.
//
// ErrLost where the lock is not held any more: roll back. A serialization failure (SQLSTATE 40001,
// which errors of PostgreSQL's drivers and dblock's own tell by a method SQLState; MySQL's 1213,
// MariaDB's 1020) means: roll back, and begin the transaction anew. The transaction's snapshot is
// older than the lock or its token, than a takeover of it, or, on PostgreSQL at REPEATABLE READ and
// above, than the first Guard of this lock: there, call Guard before anything else in the
// transaction, or be ready to run it again. It is the same error while Break, or the lock's Owner
// in another process, waits for guarded transactions to end, and for two seconds after its last
// try.
//
// The first Guard of a lock, and the first after UnlockTx, wait for the lock's row for up to a
// second: for dblock's own transactions, which are short. Where an open transaction keeps the row
// locked for longer, they return an error that says so, and the lock stays held: LockTx and
// UnlockTx lock it, in another transaction or in this one. Call Guard before them. After any error
// the transaction is as usable as before on PostgreSQL; on MySQL a deadlock has ended it.
func (c *Client[TX]) Guard(ctx context.Context, tx TX, locks ...*Lock) error {
	return c.inside(ctx, "guard", tx, locks, c.Core().Guard)
}

// UnlockTx releases locks together with a transaction of the application's on the same database:
// that they are free, or the next waiters', becomes visible if and only if the transaction commits.
// After a rollback the locks are held as before.
//
// The locks are those of this client, in the order of the bytes of their names, as in Guard. An
// error names the lock that failed. The transaction may have released those before it: roll it
// back. Below, the lock is each of them.
//
// From the commit on others may have the lock: do nothing under it between UnlockTx and the commit
// but what belongs to the transaction. Context, and that of a function given to Do, stays live
// until Unlock is called or the function returns, and for a TTL at most once the client has learned
// of the commit: so a transaction that was begun under it, or a Commit with it, can end. Unlock
// after the transaction is good manners, and on MySQL and MariaDB, where nothing else tells of the
// commit, it is what wakes the next waiter at once; otherwise that one notices within a third of
// its TTL.
//
// From UnlockTx on the client does not rely on the lock. A Lock of the same name under its context,
// or of the same Owner, waits like anybody else's. Until returns the zero time, Stats does not
// count the lock, and nobody watches its Progress. Downgrade, TryUpgrade, Extend and Detach return
// ErrNotHeld.
//
// After a rollback, call Guard or Unlock before anything else is done under the lock. Guard makes
// the lock what it was before UnlockTx. Without it a Lock of the same owner waits for the lock that
// this owner still has, until its context ends.
//
// ErrLost as Guard, which UnlockTx includes. ErrBusy where the lock guards another transaction that
// is open, also one whose COMMIT is on its way: its writes could land after those of the next
// holder. Commit that transaction, or roll it back, and call UnlockTx again; or commit this one
// without UnlockTx, and call Unlock. The transaction goes on, and the lock is held as before. On
// MySQL and MariaDB the transaction keeps the lock's row locked until it ends. On SQLite UnlockTx
// waits for the other transaction until ctx ends. ErrUnsupported where the lock was entered several
// times: only the last entry can be released so.
func (c *Client[TX]) UnlockTx(ctx context.Context, tx TX, locks ...*Lock) error {
	return c.inside(ctx, "unlocktx", tx, locks, c.Core().UnlockTx)
}

// inside does something to locks in a transaction.
func (c *Client[TX]) inside(
	ctx context.Context, op string, tx TX, locks []*Lock,
	do func(ctx context.Context, tx client.Tx, locks ...*client.Lock) (failed string, err error),
) error {
	cores := make([]*client.Lock, len(locks))
	for i, l := range locks {
		cores[i] = l.core()
	}
	failed := ""
	if len(cores) > 0 && cores[0].Valid() {
		failed = cores[0].Name()
	}
	in, err := c.in(ctx, tx)
	if err == nil {
		failed, err = do(ctx, in, cores...)
	}
	return fail(op, failed, err)
}

// LockTx takes the lock inside a transaction of the application's on the same database, and holds
// it until that ends, whichever way, or until it is rolled back to a savepoint from before: there
// is nothing to unlock. A name is one lock however it is taken: LockTx excludes LockTx and Lock,
// and Lock excludes LockTx. It needs no heartbeat and no token: the transaction that writes is the
// one that holds.
//
// It waits until ctx ends, for other transactions and for a lease. For a lease it waits in its
// queue, like any Lock. For that it needs a connection of the pool for a moment, and the lease that
// it is then granted stands behind the transaction until that ends. For other transactions it waits
// in turns, of a little more than deadlock_timeout on PostgreSQL and of half a second on MySQL and
// MariaDB. Within a turn the server serves transactions in their order. At the end of a turn ctx is
// looked at, and the transaction goes back to the end of the server's queue: so a transaction that
// came later may be served first. On SQLite chance decides. The connection of the transaction is
// busy all the while.
//
// LockTx, Guard and UnlockTx change no setting of the transaction's connection, take no named lock
// on it, and have no statement on it cancelled. So ctx may be the context that the transaction was
// begun with: when that ends, the connection goes back to the pool as it came from there. If only
// that context ends, and not ctx, the error is ErrTxDone.
//
// Several names are locked in the order of their bytes, whatever the order in which they are given,
// so that two transactions that want the same ones cannot wait for each other. Names that were
// locked before the one that failed stay locked with the transaction.
//
// ErrNotAcquired when ctx ends; the transaction stays usable. ErrInvalidOption without a name.
// Errors of the database for a serialization failure or a deadlock mean that the transaction has to
// be run again. On PostgreSQL at REPEATABLE READ and above that is so whenever a client had the
// lock as a lease, or made its row, after the transaction's snapshot: there, call LockTx first and
// be ready to run the transaction again.
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
// On MySQL and MariaDB a row lock cannot be released before the transaction ends: where another
// client takes the lease in the very moment between LockTx looking and locking, it says so, and the
// transaction must be rolled back. On SQLite the transaction locks the whole database from LockTx
// on: call it first, in a transaction that has neither read nor written, and it waits its turn like
// anywhere else; in one that has already written (BEGIN IMMEDIATE, or after a first name) nobody
// can give a lease back, so that it waits until ctx ends. Where a lease is taken between LockTx
// looking and locking, or the pool has no second connection to look with, it says so, as on MySQL.
// In these cases it may also wait inside SQLite, for as long as the application's busy_timeout
// says, before it looks at ctx.
func (c *Client[TX]) LockTx(ctx context.Context, tx TX, names ...string) error {
	return c.lockTx(ctx, "locktx", tx, names, true)
}

// TryLockTx is LockTx without waiting: ErrNotAcquired at once, where possible with the holder of
// the lock, and the transaction as it was; on SQLite it may have locked the database.
func (c *Client[TX]) TryLockTx(ctx context.Context, tx TX, names ...string) error {
	return c.lockTx(ctx, "trylocktx", tx, names, false)
}

func (c *Client[TX]) lockTx(ctx context.Context, op string, tx TX, names []string, wait bool) error {
	failed := ""
	if len(names) > 0 {
		failed = names[0]
	}
	names, err := contract.NamesOfTx(names)
	var in client.Tx
	if err == nil {
		in, err = c.in(ctx, tx)
	}
	if err == nil {
		failed, err = c.Core().LockTx(ctx, names, wait, in)
	}
	return fail(op, failed, err)
}

// in is the transaction as the client sees it.
func (c *Client[TX]) in(ctx context.Context, tx TX) (client.Tx, error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: the context is nil", ErrInvalidOption)
	}
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the transaction is nil", ErrInvalidOption)
	}
	if c.transactions == nil {
		return nil, fmt.Errorf("%w: this engine has no locks inside transactions", ErrUnsupported)
	}
	return c.transactions(tx), nil
}

// engineTx is a transaction of the application's, with what the engine does in it.
type engineTx[TX any] struct {
	engine driver.Transactions[TX]
	tx     TX
}

func (t engineTx[TX]) Exclusive() bool { return t.engine.Exclusive() }

func (t engineTx[TX]) MakeGuard(ctx context.Context, h driver.Held, onSideConn driver.OnSideConn) error {
	return t.engine.MakeGuard(ctx, h, onSideConn)
}

func (t engineTx[TX]) Guard(ctx context.Context, h driver.Held, onSideConn driver.OnSideConn) error {
	return t.engine.Guard(ctx, t.tx, h, onSideConn)
}

func (t engineTx[TX]) Release(ctx context.Context, h driver.Held, d driver.Detachment, onSideConn driver.OnSideConn) error {
	return t.engine.ReleaseTx(ctx, t.tx, h, d, onSideConn)
}

func (t engineTx[TX]) Database(ctx context.Context) (string, error) {
	return t.engine.Database(ctx, t.tx)
}

func (t engineTx[TX]) Lock(ctx context.Context, name string, wait bool, may driver.Pass, onSideConn driver.OnSideConn) (driver.State, bool, error) {
	return t.engine.LockTx(ctx, t.tx, name, may, wait, onSideConn)
}
