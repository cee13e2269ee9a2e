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

// connectTimeout is how long LockTx waits for a second connection, to look before it locks. The
// pool may be in use by transactions that all wait for each other in LockTx: then none will come.
const connectTimeout = 20 * time.Millisecond

var (
	errSnapshot = errors.New("somebody has written to the database since this transaction first read from it, so " +
		"that it " +
		"cannot write any more: roll it back, and begin it anew, with BEGIN IMMEDIATE or with this call before " +
		"anything else")
	errInTheWay = errors.New("this transaction has locked the database, and nobody can give the lock back meanwhile: " +
		"roll it back and begin it anew")
)

// transactions is what happens inside the caller's transactions: each step first takes the
// database's write lock.
type transactions struct{ db *database }

func (transactions) Exclusive() bool { return true }

// MakeGuard has nothing to make.
func (transactions) MakeGuard(context.Context, driver.Held, driver.OnSideConn) error { return nil }

// Guard needs no lock on any row: while the transaction can write, nobody else can, and so take
// nothing over.
func (t transactions) Guard(ctx context.Context, tx *sql.Tx, h driver.Held, _ driver.OnSideConn) error {
	if err := t.lockDatabase(ctx, tx); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	held, err := guarded(quiet, queriesOn(tx), h)
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return interpret(transaction.Ended(quiet, quiet, err))
}

func guarded(ctx context.Context, q *sqlitedb.Queries, h driver.Held) (held bool, err error) {
	p := sqlitedb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token}
	if h.Shared {
		_, held, err = found(q.IsShareHeld(ctx, sqlitedb.IsShareHeldParams(p)))
	} else {
		_, held, err = found(q.IsHeld(ctx, p))
	}
	return held, err
}

// ReleaseTx hands the lock on within the transaction. Nobody in this process hears of the commit:
// so a grant to the same session is counted as well, and all listeners are told to look for it.
func (t transactions) ReleaseTx(
	ctx context.Context, tx *sql.Tx, h driver.Held, d driver.Detachment, _ driver.OnSideConn,
) error {
	if err := t.lockDatabase(ctx, tx); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	if _, err := tx.ExecContext(quiet, "SAVEPOINT dblock"); err != nil {
		return interpret(err)
	}
	var c changed
	_, err := general(quiet, &writer{Queries: queriesOn(tx)}, releaseTx{h, d}, &c)
	if err != nil {
		_, undone := tx.ExecContext(quiet, "ROLLBACK TO dblock")
		err = driver.Join(err, undone)
	}
	_, released := tx.ExecContext(quiet, "RELEASE dblock")
	if err = driver.Join(err, released); err == nil {
		t.announce(c)
	}
	return interpret(err)
}

// releaseTx releases a lock, or the member of a cohort once it is detached. No session asks: each
// is told of its grants.
type releaseTx struct {
	driver.Held
	member driver.Detachment
}

func (x releaseTx) Run(n *protocol.Name) (protocol.Result, error) {
	if x.member.Token != 0 {
		if _, err := (protocol.Detach{Held: x.Held, Member: x.member}).Run(n); err != nil {
			return protocol.Result{}, err
		}
		x.Token = x.member.Token
	}
	r := protocol.Release(x.Held, true, true)
	r.Self = ""
	released, err := r.Run(n)
	if err == nil && !released.Done() {
		err = driver.ErrNotHeld
	}
	return released, err
}

// LockTx locks the database, and then looks whether that was right: under the lock nothing changes.
// But a lease that is held can be released only by a client that can write. So it looks before it
// locks too, each time, on another connection.
//
// It is tempting to look inside the transaction where there is no second connection. But what a
// transaction has read binds it: to a snapshot that the next commit of anybody's makes unfit to
// write from, or, with a rollback journal, to a shared lock that keeps the writer it waits for from
// committing.
func (t transactions) LockTx(
	ctx context.Context, tx *sql.Tx, name string, may driver.Pass, wait bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	if err := t.db.file.Load().check(); err != nil {
		return driver.State{}, false, err
	}
	began := time.Now()
	own := func(h driver.Holder, waiters int) bool { return h.Units == 0 && may(h.Attempt, waiters, tx) }
	for b := (backoff{}); ; {
		state, obstacle, err := t.lookOnSide(ctx, name)
		if err != nil || !unleased(state, own) {
			return state, false, err
		}
		err = try(ctx, tx, obstacle)
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
	state, err := lookAt(quiet, queriesOn(tx), name)
	switch {
	case err != nil:
		return driver.State{}, false, interpret(transaction.Ended(quiet, quiet, err))
	case unleased(state, own):
		id, err := t.Database(ctx, tx)
		return driver.State{Database: id}, true, err
	case wait:
		return state, false, driver.Fail(driver.ErrRetry, fmt.Errorf("others hold %q or wait for it: %w", name,
			errInTheWay))
	}
	return state, false, nil
}

func (t transactions) Database(ctx context.Context, tx *sql.Tx) (string, error) {
	quiet := context.WithoutCancel(ctx)
	id, err := queriesOn(tx).Database(quiet)
	return id, interpret(transaction.Ended(quiet, quiet, err))
}

// unleased: nobody else's lease is in the way, nor the rest after one. The own lease is none if it
// is of the whole name.
func unleased(state driver.State, own func(h driver.Holder, waiters int) bool) bool {
	return state.Holder.Session == "" && state.Waiters == 0 && state.Rest <= 0 || own(state.Holder, state.Waiters)
}

// lookOnSide looks on another connection of the pool, and returns what stopped that from writing.
// The zero values where there is none, or where it cannot look now.
func (t transactions) lookOnSide(ctx context.Context, name string) (state driver.State, obstacle, err error) {
	obstacle, err = t.onSide(ctx, func(quiet context.Context, conn *sql.Conn) (err error) {
		state, err = lookAt(quiet, queriesOn(conn), name)
		return err
	})
	if busy(err) {
		return driver.State{}, obstacle, nil
	}
	return state, obstacle, interpret(err)
}

// onSide uses another connection of the pool, if there is one now, and then tries to write on it.
// obstacle is why it cannot: the caller's transaction, or another, has the write lock.
func (t transactions) onSide(
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

// lockDatabase takes the database's write lock in the caller's transaction, and waits for it until
// ctx ends.
func (t transactions) lockDatabase(ctx context.Context, tx *sql.Tx) error {
	if err := t.db.file.Load().check(); err != nil {
		return err
	}
	for b := (backoff{}); ; {
		obstacle, err := t.onSide(ctx, func(context.Context, *sql.Conn) error { return nil })
		if err == nil || busy(err) {
			err = try(ctx, tx, obstacle)
		}
		if !inTheWay(err) {
			return interpret(err)
		}
		if over := b.wait(ctx); over != nil {
			return driver.Fail(over, err)
		}
	}
}

// inTheWay: to try again may help. A snapshot that is too old stays so.
func inTheWay(err error) bool { return busy(err) && !errors.Is(err, driver.ErrRetry) }

// try takes the write lock, or returns the obstacle if the statement would wait for that inside
// SQLite. No context ends such a wait, and the application's busy timeout stays as it is: were the
// transaction ended meanwhile, by the context it was begun with, nobody could restore it.
func try(ctx context.Context, tx *sql.Tx, obstacle error) error {
	quiet := context.WithoutCancel(ctx)
	if obstacle != nil && waitsInside(quiet, tx) {
		return obstacle
	}
	_, err := queriesOn(tx).LockDatabase(quiet)
	code, coded := codeOf(err)
	switch {
	case coded && code == sqliteBusySnapshot:
		return driver.Fail(driver.ErrRetry, fmt.Errorf("%w: %w", errSnapshot, err))
	case coded && code == sqliteError && !migrated(quiet, tx):
		return driver.Fail(driver.ErrSchema, err)
	}
	return err
}

// waitsInside reports whether SQLite waits, in a statement that writes, for another writer: it does
// where there is a busy timeout, and the transaction has neither read nor written. A transaction
// that has is answered at once: it has the write lock, or its snapshot forbids to wait. SQLite
// refuses a checkpoint to a transaction that has, and no statement but a checkpoint tells.
func waitsInside(ctx context.Context, tx *sql.Tx) bool {
	var patience, busy, frames, done int64
	if err := tx.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err != nil || patience == 0 {
		return false
	}
	return tx.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &done) == nil
}
