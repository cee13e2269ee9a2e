package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	saveTx    = "SAVEPOINT dblock_advisory"
	releaseTx = "RELEASE SAVEPOINT dblock_advisory"
	backTx    = "ROLLBACK TO SAVEPOINT dblock_advisory"

	// The queue is a session's lock even here: only such a lock can be given back before the
	// transaction ends. The savepoint sees to it that it can be given back after an error too.
	tryTx = `SELECT CASE WHEN pg_try_advisory_lock_shared($2::int8) THEN
		CASE WHEN pg_try_advisory_xact_lock%s($1::int8) THEN CASE WHEN pg_advisory_unlock_shared($2) THEN 1 ELSE 2 END
		ELSE CASE WHEN pg_advisory_unlock_shared($2) THEN 0 ELSE 2 END END ELSE 0 END`

	// The transaction's own lock, in any mode: it must not wait behind those who wait for it.
	ownTx = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted
		AND l.objsubid = 1 AND l.classid = $1::int8::oid AND l.objid = $2::int8::oid)`
)

// LockTx is driver.Keeper's. It waits in the caller's own connection, in the same queue as
// everybody else, and excludes what this client itself holds as well. ctx ends the waiting in the
// server, under a savepoint, and the transaction goes on; so it does after the application's own
// lock_timeout and statement_timeout.
//
// At REPEATABLE READ and SERIALIZABLE a transaction sees the database as it was when its first
// statement began. Where that is this one, it is as of before the wait: lock at READ COMMITTED, or
// expect a serialisation error.
func (k advisoryKeeper) LockTx(ctx context.Context, tx pgx.Tx, name string, shared, wait bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	t := advisoryTx{tx: tx, key: keysOf(name)}
	if shared {
		t.mode = "_shared"
	}
	taken, err := t.try(ctx)
	if err != nil || taken || !wait {
		return taken, err
	}
	return t.wait(ctx)
}

// advisoryTx is one call of LockTx.
type advisoryTx struct {
	tx   pgx.Tx
	key  advisoryKeys
	mode string
}

// try takes the lock if it is free and nobody queues for it, in one round trip.
func (t advisoryTx) try(ctx context.Context) (bool, error) {
	ctx, cancel := transaction.Lenient(ctx)
	defer cancel()
	saved, answer := false, 0
	b := &pgx.Batch{}
	b.Queue(saveTx).Exec(func(pgconn.CommandTag) error { saved = true; return nil })
	b.Queue(fmt.Sprintf(tryTx, t.mode), t.key.lock, t.key.queue).QueryRow(func(row pgx.Row) error { return row.Scan(&answer) })
	b.Queue(releaseTx)
	err := t.tx.SendBatch(ctx, b).Close()
	switch {
	case err != nil && saved:
		return false, errors.Join(pgserver.Interpret(err), t.undo(ctx, 0, "pg_advisory_unlock_shared"))
	case err != nil:
		return false, pgserver.Interpret(err)
	case answer == 2:
		return false, errors.New("the server says that the queue's lock was not held which it had given a moment ago")
	}
	return answer == 1, nil
}

// wait queues for the lock, under a savepoint that is there before anything can be cancelled.
func (t advisoryTx) wait(ctx context.Context) (bool, error) {
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
		// Even if it was taken in the same moment: a cancellation may be on its way to what comes
		// next.
		if pgserver.State(err) == pgserver.QueryCanceled {
			cancels--
		}
		return false, errors.Join(ctx.Err(), t.undo(end, cancels, "pg_advisory_unlock"))
	}
	if err == nil {
		_, err = t.tx.Exec(end, releaseTx)
	}
	if err != nil {
		return false, errors.Join(pgserver.Interpret(err), t.undo(end, 0, "pg_advisory_unlock"))
	}
	return true, nil
}

// queue is what waits: for the queue, and then for the lock; own is true where the transaction has
// that already, in one mode or the other.
func (t advisoryTx) queue(own bool) *pgx.Batch {
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

// undo brings the transaction back to where it was, without the queue's lock; and first outlasts
// cancellations that were sent and have not been seen, which else would hit what the caller does
// next.
func (t advisoryTx) undo(ctx context.Context, cancels int, unlock string) error {
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
			_ = t.tx.Conn().Close(ctx) // rather than leave a lock on it
		}
		return pgserver.Interpret(err)
	}
}
