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
)

// connectTimeout is how long LockTx waits for a second connection, to look before it locks. The
// pool may be in use by transactions that all wait for each other in LockTx: then none will come.
const connectTimeout = 20 * time.Millisecond

var (
	errSnapshot = errors.New("somebody has written to the database since this transaction first read from it, so that it " +
		"cannot write any more: roll it back, and begin it anew, with BEGIN IMMEDIATE or with this call before anything else")
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
	held, err := guarded(context.WithoutCancel(ctx), queriesOn(tx), h)
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return interpret(err)
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
func (t transactions) ReleaseTx(ctx context.Context, tx *sql.Tx, h driver.Held, d driver.Detachment, _ driver.OnSideConn) error {
	if err := t.lockDatabase(ctx, tx); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	if _, err := tx.ExecContext(quiet, "SAVEPOINT dblock"); err != nil {
		return interpret(err)
	}
	c, err := change(quiet, &writer{Queries: queriesOn(tx)}, driver.How{Name: h.Name}, func(n *protocol.Name) error {
		return release(n, h, d)
	})
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

// release takes off a lock, or the member of a cohort that is detached. No session asks: each is
// told of its grants.
func release(n *protocol.Name, h driver.Held, d driver.Detachment) error {
	if d.Token != 0 {
		if err := protocol.Detach(n, h, d); err != nil {
			return err
		}
		h.Token = d.Token
	}
	r := protocol.Release(h, true, true)
	r.Self = ""
	left, err := protocol.Remove(n, r)
	if err == nil && !left {
		err = driver.ErrNotHeld
	}
	return err
}

// LockTx locks the database, and then looks whether that was right: under the lock nothing changes.
// But a lease that is held can be released only by a client that can write. So it looks before it
// locks too, each time, on another connection.
//
// It is tempting to look inside the transaction where there is no second connection. But what a
// transaction has read binds it: to a snapshot that the next commit of anybody's makes unfit to
// write from, or, with a rollback journal, to a shared lock that keeps the writer it waits for from
// committing.
func (t transactions) LockTx(ctx context.Context, tx *sql.Tx, name string, may driver.Pass, wait bool, _ driver.OnSideConn) (driver.State, bool, error) {
	if err := t.db.file.Load().check(); err != nil {
		return driver.State{}, false, err
	}
	began := time.Now()
	own := func(h driver.Holder, waiters int) bool { return h.Units == 0 && may(h.Attempt, waiters, tx) }
	for b := (backoff{}); ; {
		state, err := t.lookOnSide(ctx, name)
		if err != nil || !unleased(state, own) {
			return state, false, err
		}
		err = try(ctx, tx)
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
	state, err := lookAt(context.WithoutCancel(ctx), queriesOn(tx), name)
	switch {
	case err != nil:
		return driver.State{}, false, interpret(err)
	case unleased(state, own):
		id, err := t.Database(ctx, tx)
		return driver.State{Database: id}, true, err
	case wait:
		return state, false, driver.Fail(driver.ErrRetry, fmt.Errorf("others hold %q or wait for it: %w", name, errInTheWay))
	}
	return state, false, nil
}

func (t transactions) Database(ctx context.Context, tx *sql.Tx) (string, error) {
	id, err := queriesOn(tx).Database(context.WithoutCancel(ctx))
	return id, interpret(err)
}

// unleased: nobody else's lease is in the way, nor the rest after one. The own lease is none if it
// is of the whole name.
func unleased(state driver.State, own func(h driver.Holder, waiters int) bool) bool {
	return state.Holder.Session == "" && state.Waiters == 0 && state.Rest <= 0 || own(state.Holder, state.Waiters)
}

// lookOnSide looks on another connection of the pool. The zero value where there is none, or where
// it cannot look now.
func (t transactions) lookOnSide(ctx context.Context, name string) (state driver.State, err error) {
	if err := ctx.Err(); err != nil || t.db.db.Stats().MaxOpenConnections == 1 {
		return state, err
	}
	moment, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = t.db.borrow(moment, asSet, func(quiet context.Context, conn *sql.Conn) (err error) {
		state, err = lookAt(quiet, queriesOn(conn), name)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return driver.State{}, ctx.Err()
	case busy(err), errors.Is(err, context.DeadlineExceeded):
		return driver.State{}, nil
	}
	return state, interpret(err)
}

func lookAt(ctx context.Context, q *sqlitedb.Queries, name string) (driver.State, error) {
	states, err := look(ctx, q, "", []string{name})
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
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try(ctx, tx)
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

// try takes the write lock, or fails at once. The busy timeout is not the application's for these
// microseconds only: were the transaction ended meanwhile, by the context it was begun with, its
// connection could not be reached any more.
func try(ctx context.Context, tx *sql.Tx) (err error) {
	quiet := context.WithoutCancel(ctx)
	var patience int64
	if err := tx.QueryRowContext(quiet, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return err
	}
	if patience != 0 {
		if err := setBusyTimeout(quiet, tx, 0); err != nil {
			return err
		}
		defer func() {
			if restored := setBusyTimeout(quiet, tx, patience); err == nil {
				err = restored
			}
		}()
	}
	_, err = queriesOn(tx).LockDatabase(quiet)
	code, coded := codeOf(err)
	switch {
	case coded && code == sqliteBusySnapshot:
		return driver.Fail(driver.ErrRetry, fmt.Errorf("%w: %w", errSnapshot, err))
	case coded && code == sqliteError && !migrated(quiet, tx):
		return driver.Fail(driver.ErrSchema, err)
	}
	return err
}
