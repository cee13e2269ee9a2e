package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// connectTimeout bounds the wait of LockTx for a second connection, to read before it locks. If
// transactions that wait for each other in LockTx use the whole pool, none will come.
const connectTimeout = 20 * time.Millisecond

var (
	errSnapshot = errors.New("another connection has written to the database since this transaction first read from " +
		"it, so this transaction cannot write any more: roll it back and begin it again, with BEGIN IMMEDIATE or " +
		"with this call before anything else")
	errInTheWay = errors.New("this transaction has locked the database, so the lock cannot be released meanwhile: " +
		"roll the transaction back and begin it again")
)

// inTx runs the steps inside the caller's transaction. Each step first takes the database's write
// lock.
type inTx struct {
	db *database
	tx *sql.Tx
}

func (inTx) Exclusive() bool { return true }

// MakeGuard does nothing: a guard needs no row.
func (inTx) MakeGuard(context.Context, protocol.Held, driver.OnSideConn) error { return nil }

// Guard locks no row: while the transaction can write, no other transaction can, and so none can
// take the lock over.
func (t inTx) Guard(ctx context.Context, h protocol.Held, _ driver.OnSideConn) error {
	if err := t.lockDatabase(ctx); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	held, err := guarded(quiet, t.db.queriesOn(t.tx), h)
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return interpretTx(err)
}

// interpretTx interprets the error of a statement in the caller's transaction that no context ends.
func interpretTx(err error) error {
	quiet := context.Background()
	return interpret(transaction.Ended(quiet, quiet, err))
}

func guarded(ctx context.Context, q *sqlitedb.Queries, h protocol.Held) (held bool, err error) {
	p := sqlitedb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token}
	if h.Shared {
		_, held, err = found(q.IsShareHeld(ctx, sqlitedb.IsShareHeldParams(p)))
	} else {
		_, held, err = found(q.IsHeld(ctx, p))
	}
	return held, err
}

// Release hands the lock on within the transaction. This process does not learn of the commit, so
// a grant to the same session is counted as well, and all listeners are told to look for it.
func (t inTx) Release(
	ctx context.Context, h protocol.Held, d protocol.Detachment, _ driver.OnSideConn,
) error {
	if err := t.lockDatabase(ctx); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	if _, err := t.tx.ExecContext(quiet, "SAVEPOINT dblock"); err != nil {
		return interpretTx(err)
	}
	var c changed
	_, err := general(quiet, &writer{Queries: t.db.queriesOn(t.tx)}, releaseTx{h, d}, &c)
	if err != nil {
		_, undone := t.tx.ExecContext(quiet, "ROLLBACK TO dblock")
		err = driver.Join(err, undone)
	}
	_, released := t.tx.ExecContext(quiet, "RELEASE dblock")
	if err = driver.Join(err, released); err == nil {
		t.announce(c)
	}
	return interpretTx(err)
}

// releaseTx releases a lock, or the member of a cohort once it is detached. It names no releasing
// session, so that every session is notified of its grants.
type releaseTx struct {
	protocol.Held
	member protocol.Detachment
}

func (x releaseTx) Apply(n *protocol.Name) (protocol.Result, error) {
	if x.member.Token != 0 {
		if _, err := (protocol.Detach{Held: x.Held, Member: x.member}).Apply(n); err != nil {
			return protocol.Result{}, err
		}
		x.Token = x.member.Token
	}
	r := protocol.Release(x.Held, true, true)
	r.Self = ""
	released, err := r.Apply(n)
	if err == nil && !released.Done() {
		err = driver.ErrNotHeld
	}
	return released, err
}

// Lock locks the database and then checks that nothing is in the way: under the lock nothing
// changes. But only a client that can write can release a lease. So before each attempt to lock,
// Lock also reads on another connection.
//
// It is tempting to read inside the transaction if there is no second connection. But a read binds
// the transaction: to a snapshot that the next commit makes unfit to write from, or, with a
// rollback journal, to a shared lock that keeps the writer it waits for from committing.
func (t inTx) Lock(
	ctx context.Context, name string, may driver.Pass, wait bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	if err := t.open(ctx); err != nil {
		return driver.State{}, false, err
	}
	began := time.Now()
	own := func(h protocol.Holder, waiters int) bool { return h.Units == 0 && may(h.Attempt, waiters, t.tx) }
	for b := (backoff{}); ; {
		state, obstacle, err := t.lookOnSide(ctx, name)
		if err != nil || !unleased(state, own) {
			return state, false, err
		}
		err = t.db.try(ctx, t.tx, obstacle)
		if err == nil {
			break
		}
		if !inTheWay(err) {
			return driver.State{}, false, interpret(err)
		}
		if !wait && time.Since(began) > briefly {
			return driver.State{}, false, nil
		}
		if over := b.wait(ctx); over != nil {
			return driver.State{}, false, driver.Fail(over, err)
		}
	}
	quiet := context.WithoutCancel(ctx)
	state, err := lookAt(quiet, t.db.queriesOn(t.tx), name)
	switch {
	case err != nil:
		return driver.State{}, false, interpretTx(err)
	case unleased(state, own):
		id, err := t.Database(ctx)
		return driver.State{Database: id}, true, err
	case wait:
		return state, false, driver.Fail(driver.ErrRetry, fmt.Errorf("other clients hold %q or wait for it: %w",
			name, errInTheWay))
	}
	return state, false, nil
}

func (t inTx) Database(ctx context.Context) (string, error) {
	quiet := context.WithoutCancel(ctx)
	id, err := t.db.queriesOn(t.tx).Database(quiet)
	return id, interpretTx(err)
}

// unleased reports that no other client's lease, nor the rest after one, is in the way. The own
// lease is not in the way if it is of the whole name.
func unleased(state driver.State, own func(h protocol.Holder, waiters int) bool) bool {
	return state.Row().Free(0, 0, 0) || own(state.Holder, state.Waiters)
}

// lookOnSide reads on another connection of the pool, and returns the error that stopped that
// connection from writing. It returns zero values if there is no connection, or it cannot read now.
func (t inTx) lookOnSide(ctx context.Context, name string) (state driver.State, obstacle, err error) {
	obstacle, err = t.onSide(ctx, func(quiet context.Context, conn *sql.Conn) (err error) {
		state, err = lookAt(quiet, t.db.queriesOn(conn), name)
		return err
	})
	if busy(err) {
		return driver.State{}, obstacle, nil
	}
	return state, obstacle, interpret(err)
}

// onSide uses another connection of the pool, if there is one now, and then tries to write on it.
// obstacle is the error of that write: the caller's transaction, or another, has the write lock.
func (t inTx) onSide(
	ctx context.Context, use func(quiet context.Context, conn *sql.Conn) error,
) (obstacle, err error) {
	if err := ctx.Err(); err != nil || t.db.db.Stats().MaxOpenConnections == 1 {
		return nil, err
	}
	moment, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = t.db.borrow(moment, asSet, func(quiet context.Context, conn *sql.Conn) error {
		if err := use(quiet, conn); err != nil {
			return err
		}
		if _, obstacle = conn.ExecContext(quiet, "BEGIN IMMEDIATE"); obstacle == nil {
			rollBack(quiet, conn)
		}
		return nil
	})
	if !busy(obstacle) {
		obstacle = nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil
	}
	return obstacle, err
}

func lookAt(ctx context.Context, q *sqlitedb.Queries, name string) (driver.State, error) {
	states, err := read(ctx, q, "", []string{name}, 0)
	if err != nil || len(states) == 0 {
		return driver.State{Name: name}, err
	}
	return states[0], nil
}

// open returns an error unless the transaction is open, in the file that the pool opened.
func (t inTx) open(ctx context.Context) error {
	if err := t.db.file.Load().check(); err != nil {
		return err
	}
	return interpretTx(transaction.OpenSQLite(context.WithoutCancel(ctx), transaction.On(t.tx)))
}

// lockDatabase takes the database's write lock in the caller's transaction, and waits for it until
// ctx ends.
func (t inTx) lockDatabase(ctx context.Context) error {
	if err := t.open(ctx); err != nil {
		return err
	}
	for b := (backoff{}); ; {
		obstacle, err := t.onSide(ctx, func(context.Context, *sql.Conn) error { return nil })
		if err == nil || busy(err) {
			err = t.db.try(ctx, t.tx, obstacle)
		}
		if !inTheWay(err) {
			return interpret(err)
		}
		if over := b.wait(ctx); over != nil {
			return driver.Fail(over, err)
		}
	}
}

// inTheWay reports whether a retry may help. A snapshot that is too old stays too old.
func inTheWay(err error) bool { return busy(err) && !errors.Is(err, driver.ErrRetry) }

// try takes the write lock, or returns the obstacle if the statement would wait for that lock
// inside SQLite. No context ends such a wait. The application's busy timeout remains as it is: if
// the context of the transaction ended it meanwhile, the timeout could not be restored.
func (d *database) try(ctx context.Context, tx *sql.Tx, obstacle error) error {
	quiet := context.WithoutCancel(ctx)
	if obstacle != nil && waitsInside(quiet, tx) {
		return obstacle
	}
	_, err := d.queriesOn(tx).LockDatabase(quiet)
	code, coded := codeOf(err)
	switch {
	case coded && code == sqliteBusySnapshot:
		return driver.Fail(driver.ErrRetry, fmt.Errorf("%w: %w", errSnapshot, err))
	case coded && code == sqliteError && !migrated(quiet, tx):
		return driver.Fail(driver.ErrSchema, err)
	}
	return transaction.Ended(quiet, quiet, err)
}

// waitsInside reports whether a writing statement would wait inside SQLite for another writer: it
// does if there is a busy timeout and the transaction has neither read nor written. A transaction
// that has is answered at once: it has the write lock, or its snapshot forbids to wait. SQLite
// refuses a checkpoint inside such a transaction, and no other statement reveals the difference.
func waitsInside(ctx context.Context, tx *sql.Tx) bool {
	var patience, busy, frames, done int64
	if err := tx.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err != nil || patience == 0 {
		return false
	}
	return tx.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &done) == nil
}
