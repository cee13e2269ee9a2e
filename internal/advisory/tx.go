package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	saveTx    = "SAVEPOINT dblock_advisory"
	releaseTx = "RELEASE SAVEPOINT dblock_advisory"
	backTx    = "ROLLBACK TO SAVEPOINT dblock_advisory"

	// tryTx takes the queue as a session's lock even here: only a session's lock can be released
	// before the transaction ends. With the savepoint it can be released after an error too.
	tryTx = `SELECT CASE WHEN pg_try_advisory_lock_shared($2::int8) THEN
		CASE WHEN pg_try_advisory_xact_lock%s($1::int8) THEN CASE WHEN pg_advisory_unlock_shared($2) THEN 1 ELSE 2 END
		ELSE CASE WHEN pg_advisory_unlock_shared($2) THEN 0 ELSE 2 END END ELSE 0 END`

	// ownTx tells whether the transaction has the lock already, in either mode: it must not wait
	// behind the waiters for its own lock.
	ownTx = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted
		AND l.objsubid = 1 AND l.classid = $1::int8::oid AND l.objid = $2::int8::oid)`
)

// LockTx takes names until a transaction ends, in their order. It waits on the caller's own
// connection, in the same queue as all others, and also excludes locks of this client. When ctx
// ends, the wait is cancelled in the server, under a savepoint, and the transaction continues. It
// also continues after the application's own lock_timeout and statement_timeout.
//
// At REPEATABLE READ and SERIALIZABLE a transaction sees the database as it was when its first
// statement began. If LockTx is that statement, the transaction sees the database as it was before
// the wait: lock at READ COMMITTED, or expect a serialisation error.
func (c *Client) LockTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.InTx(ctx, "locktx", names, true, inTx(tx, false))
}

// TryLockTx is LockTx without waiting.
func (c *Client) TryLockTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.InTx(ctx, "trylocktx", names, false, inTx(tx, false))
}

// LockSharedTx is LockTx for a reader.
func (c *Client) LockSharedTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.InTx(ctx, "locksharedtx", names, true, inTx(tx, true))
}

// inTx returns the function that takes one name in a transaction.
func inTx(tx pgx.Tx, shared bool) func(ctx context.Context, name string, wait bool) (bool, error) {
	return func(ctx context.Context, name string, wait bool) (bool, error) {
		if tx == nil {
			return false, fmt.Errorf("%w: the transaction is nil", contract.ErrInvalidOption)
		}
		return lockTx(ctx, tx, name, shared, wait)
	}
}

// lockTx takes a name. With wait false it returns false if the name has another holder. After an
// error the transaction is unchanged.
func lockTx(ctx context.Context, tx pgx.Tx, name string, shared, wait bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	t := txLock{tx: tx, key: keysOf(name)}
	if shared {
		t.mode = "_shared"
	}
	taken, err := t.try(ctx)
	if err != nil || taken || !wait {
		return taken, err
	}
	return t.wait(ctx)
}

// txLock is one call of LockTx.
type txLock struct {
	tx   pgx.Tx
	key  keys
	mode string
}

// try takes the lock if it is free and has no queue, in one round trip.
func (t txLock) try(ctx context.Context) (bool, error) {
	ctx, cancel := transaction.Lenient(ctx)
	defer cancel()
	saved, answer := false, 0
	b := &pgx.Batch{}
	b.Queue(saveTx).Exec(func(pgconn.CommandTag) error { saved = true; return nil })
	b.Queue(fmt.Sprintf(tryTx, t.mode), t.key.lock,
		t.key.queue).QueryRow(func(row pgx.Row) error { return row.Scan(&answer) })
	b.Queue(releaseTx)
	err := t.tx.SendBatch(ctx, b).Close()
	switch {
	case err != nil && saved:
		return false, driver.Join(pgserver.Interpret(err), t.undo(ctx, 0, "pg_advisory_unlock_shared"))
	case err != nil:
		return false, pgserver.Interpret(err)
	case answer == 2:
		return false, errors.New("the server says that the queue's lock was not held which it had given a moment ago")
	}
	return answer == 1, nil
}

// wait joins the queue for the lock. The savepoint is set before anything can be cancelled.
func (t txLock) wait(ctx context.Context) (bool, error) {
	end, cancel := transaction.Lenient(ctx)
	defer cancel()
	saved, own := false, false
	key := uint64(t.key.lock)
	b := &pgx.Batch{}
	b.Queue(saveTx).Exec(func(pgconn.CommandTag) error { saved = true; return nil })
	b.Queue(ownTx, int64(key>>32), int64(uint32(key))).QueryRow(func(row pgx.Row) error { return row.Scan(&own) })
	err := t.tx.SendBatch(end, b).Close()
	if err != nil && !saved {
		return false, pgserver.Interpret(err)
	}
	cancels := 0
	if err == nil {
		cancels, err = cancellable(ctx, t.tx.Conn().PgConn(), func(ctx context.Context) error {
			return t.tx.SendBatch(ctx, t.queue(own)).Close()
		})
	}
	if cancels > 0 {
		// The wait fails even if the lock was just taken: a cancellation may still be in flight,
		// and would hit the next statement.
		if pgserver.State(err) == pgserver.QueryCanceled {
			cancels--
		}
		return false, driver.Join(ctx.Err(), t.undo(end, cancels, "pg_advisory_unlock"))
	}
	if err == nil {
		_, err = t.tx.Exec(end, releaseTx)
	}
	if err != nil {
		return false, driver.Join(pgserver.Interpret(err), t.undo(end, 0, "pg_advisory_unlock"))
	}
	return true, nil
}

// queue returns the batch that waits for the queue, and then for the lock. own: the transaction has
// the lock already, in either mode, and does not queue.
func (t txLock) queue(own bool) *pgx.Batch {
	b := &pgx.Batch{}
	if !own {
		b.Queue("SELECT pg_advisory_lock($1::int8)", t.key.queue)
	}
	b.Queue("SELECT pg_advisory_xact_lock"+t.mode+"($1::int8)", t.key.lock)
	if !own {
		b.Queue("SELECT pg_advisory_unlock($1::int8)", t.key.queue)
	}
	return b
}

// undo rolls the transaction back to the savepoint, and releases the queue's lock. Before that it
// absorbs sent cancellations that have not been seen, which otherwise would hit the caller's next
// statement.
func (t txLock) undo(ctx context.Context, cancels int, unlock string) error {
	for cancels > 0 {
		_, err := t.tx.Exec(ctx, backTx+"; SELECT pg_sleep(0.05)")
		if pgserver.State(err) != pgserver.QueryCanceled {
			break
		}
		cancels--
	}
	for {
		_, err := t.tx.Exec(ctx, fmt.Sprintf("%s; SELECT %s(%d); %s", backTx, unlock, t.key.queue, releaseTx))
		if pgserver.State(err) == pgserver.QueryCanceled {
			continue
		}
		if err != nil && !t.tx.Conn().IsClosed() {
			_ = t.tx.Conn().Close(ctx) // the lock must not stay on it
		}
		return pgserver.Interpret(err)
	}
}
