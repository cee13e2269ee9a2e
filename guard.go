package dblock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// guardPatience is how long Guard waits for the lock's row, where it has to make the guard's: for
// transactions of dblock's own, and not for the application's, which may be the caller's own.
const guardPatience = time.Second

// Guard makes sure, inside a transaction of the application's on the same database, that what it
// writes is written by the holder of the lock: it returns ErrLost unless the lock is held at that
// moment, and from then until the transaction ends no takeover of it can commit, however long the
// holder is stopped. Takeovers do not wait for the transaction; they come back later. What is
// written before Guard is guarded as well, if it is called before the commit.
//
// A guard is of this lock alone: takeovers of other locks of the client go on beside it. It ends
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
// ErrLost where the lock is not held any more: roll back. ErrUnsupported on locks without tables. A
// serialization failure (SQLSTATE 40001, which errors of PostgreSQL's drivers and dblock's own tell
// by a method SQLState; MySQL's 1213, MariaDB's 1020) means: roll back, and begin the transaction
// anew. The transaction's snapshot is older than the lock or its token, than a takeover of it, or,
// on PostgreSQL at REPEATABLE READ and above, than the first Guard of this lock: there, call Guard
// before anything else in the transaction, or be ready to run it again. It is the same error while
// Break, or the lock's Owner in another process, waits for guarded transactions to end, and for two
// seconds after its last try. An error that names an open transaction of the application means that
// the lock's row is locked, by LockTx or UnlockTx, in another transaction or in this one: call
// Guard before them. After any error the transaction is as usable as before on PostgreSQL; on MySQL
// a deadlock has ended it.
func (l *Lock[TX]) Guard(ctx context.Context, tx TX) error {
	return guardAll(ctx, tx, l)
}

// Guard is Lock.Guard for all of them.
func (l *Locks[TX]) Guard(ctx context.Context, tx TX) error {
	return guardAll(ctx, tx, l.locks...)
}

// guardAll makes the guards of all locks before it touches the transaction, whose snapshot must
// show them.
func guardAll[TX any](ctx context.Context, tx TX, locks ...*Lock[TX]) error {
	proofs := make([]func(), len(locks))
	for i, l := range locks {
		err := l.inside(ctx, "guard", tx, func() (err error) {
			proofs[i], err = l.makeGuard(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	for i, l := range locks {
		if err := l.inside(ctx, "guard", tx, func() error { return l.guard(ctx, tx) }); err != nil {
			return err
		}
		proofs[i]()
	}
	return nil
}

func (l *Lock[TX]) guard(ctx context.Context, tx TX) error {
	done, err := l.rely(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = l.client.engine.Transactions.Guard(ctx, tx, l.hold.held(), l.aside)
	if errors.Is(err, driver.ErrRetry) {
		l.hold.guardable.Store(false) // the row may be gone: the next transaction finds it made anew
	}
	return err
}

// makeGuard makes the row that Guard locks, unless that was done. After UnlockTx it is done again,
// for what it finds out: the name's row is not locked, and the lock is held, so the transaction of
// UnlockTx was rolled back. Once the lock is guarded, proven must be called.
func (l *Lock[TX]) makeGuard(ctx context.Context) (proven func(), err error) {
	h := l.hold
	proven = h.leaving.seen()
	if h.guardable.Load() && !h.leaving.possible() {
		return proven, nil
	}
	done, err := l.rely(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for began := l.client.config.clock(); ; pause(ctx, 10*time.Millisecond) {
		err := l.client.engine.Transactions.MakeGuard(ctx, h.held(), l.aside)
		switch {
		case err == nil:
			h.guardable.Store(true)
			return proven, nil
		case ctx.Err() != nil:
			return nil, errors.Join(context.Cause(ctx), err)
		case !errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrRetry): // of a transaction of dblock's own
			return nil, err
		case l.client.config.clock()-began >= guardPatience:
			return nil, fmt.Errorf("the lock's row is locked by LockTx or UnlockTx, in another transaction or before Guard in this one: %w", err)
		}
	}
}
