package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	// killPause is the pause between two KILLs of a statement: one that comes before it is lost.
	killPause = 50 * time.Millisecond
)

// transactions is what happens inside the caller's transactions. What has to be fresh at every isolation level, and
// must not lock the lock's row, is read on a connection of the engine's own beside.
type transactions struct{ engine *engine }

func (t transactions) queries(tx *sql.Tx) *mysqldb.Queries {
	return mysqldb.New(preparedTx{t.engine.prepared, tx})
}

func (t transactions) Guard(ctx context.Context, tx *sql.Tx, h driver.Held, aside driver.Aside) error {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	session, err := t.queries(tx).ShareSession(quiet, h.Session)
	if there, err := found(err); err != nil {
		return interpret(err)
	} else if !there || session.Dead {
		return driver.ErrNotHeld
	}
	return aside(ctx, func(ctx context.Context, up driver.Upkeep) error {
		lock, err := isHeld(ctx, up.(upkeep).q, h)
		switch here, there := text(session.Server), text(lock.Server); {
		case err != nil:
			return interpret(err)
		case here != there:
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf("the transaction is on server %s, the client's heartbeats are on %s", here, there))
		case !lock.Held:
			return driver.ErrNotHeld
		}
		return nil
	})
}

func isHeld(ctx context.Context, q *mysqldb.Queries, h driver.Held) (mysqldb.IsHeldRow, error) {
	if !h.Shared {
		return q.IsHeld(ctx, mysqldb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token})
	}
	lock, err := q.IsShareHeld(ctx, mysqldb.IsShareHeldParams{Name: h.Name, Session: h.Session, Token: h.Token})
	return mysqldb.IsHeldRow(lock), err
}

// ReleaseTx leaves the queue as it is: who is next could only be read by a locking read of a range, which locks the
// neighbours' queues as well at the usual isolation level.
func (t transactions) ReleaseTx(ctx context.Context, tx *sql.Tx, h driver.Held, aside driver.Aside) error {
	q := t.queries(tx)
	switch _, there, err := t.lock(ctx, tx, q, h.Name, true, aside); {
	case err != nil:
		return interpret(err)
	case !there:
		return driver.ErrNotHeld
	}
	if h.Shared {
		return interpret(t.releaseShare(ctx, q, h, aside))
	}
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	released, err := q.ReleaseTx(quiet, mysqldb.ReleaseTxParams{Name: h.Name, Session: h.Session, Token: h.Token})
	if err == nil && released == 0 {
		return driver.ErrNotHeld
	}
	return interpret(err)
}

// releaseShare runs after lock: nobody else can change the shares of the name. It reads them beside the transaction, whose
// snapshot may be old; to read or delete there what is missing would lock the gap.
func (t transactions) releaseShare(ctx context.Context, q *mysqldb.Queries, h driver.Held, aside driver.Aside) error {
	var share mysqldb.FindShareRow
	err := aside(ctx, func(ctx context.Context, up driver.Upkeep) (err error) {
		share, err = up.(upkeep).q.FindShare(ctx, mysqldb.FindShareParams{Name: h.Name, Token: h.Token})
		there, err := found(err)
		if err == nil && (!there || share.SessionID != h.Session) {
			return driver.ErrNotHeld
		}
		return interpret(err)
	})
	if err != nil {
		return err
	}
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	dropped, err := q.DropShare(quiet, mysqldb.DropShareParams{Name: h.Name, Token: h.Token})
	if err != nil || dropped == 0 { // this transaction has released it before
		return notHeld(err)
	}
	return q.ReturnUnits(quiet, mysqldb.ReturnUnitsParams{Name: h.Name, Units: int64(share.Units)})
}

// LockTx looks beside the transaction before it locks anything in it: a row lock cannot be given back.
func (t transactions) LockTx(ctx context.Context, tx *sql.Tx, name string, may driver.Pass, wait bool, aside driver.Aside) (driver.State, bool, error) {
	free := func(session, attempt string, used, waiters int32) bool {
		return session == "" && used == 0 && waiters == 0 || session != "" && may(attempt, int(waiters), tx)
	}
	q := t.queries(tx)
	state, err := t.look(ctx, name, aside)
	if err != nil {
		return state, false, err
	}
	if state.Sharing > 0 || state.Rest > 0 && state.Holder.Session == "" || !free(state.Holder.Session, state.Holder.Attempt, int32(state.Used), int32(state.Waiters)) {
		return state, false, nil
	}
	row, locked, err := t.lock(ctx, tx, q, name, wait, aside)
	switch {
	case err != nil:
		return driver.State{}, false, interpret(err)
	case !locked && !wait:
		return driver.State{}, false, nil
	case !locked:
		// Where the row was, at REPEATABLE READ the transaction now has the gap locked: who made the row again, beside it,
		// would wait for it.
		return driver.State{}, false, driver.Fail(driver.ErrRetry, errors.New("the lock's row was purged in the same moment, and its place may be locked: roll back"))
	}
	if !free(row.SessionID, row.Attempt, row.SharedUnits, row.Waiters) {
		return driver.State{}, false, driver.Fail(driver.ErrRetry, errors.New("another took the lock in the same moment, and must wait for this transaction to release it: roll back"))
	}
	if row.RestsUntil > 0 && row.SessionID == "" {
		quiet, cancel := transaction.Lenient(ctx)
		defer cancel()
		now, err := q.Clock(quiet) // after the lock, which may have been waited for
		if err != nil {
			return driver.State{}, false, interpret(err)
		}
		if row.RestsUntil > now {
			return driver.State{}, false, driver.Fail(driver.ErrRetry, errors.New("another had the lock in the same moment, and nobody gets it yet for the sake of MinHold: roll back"))
		}
	}
	return driver.State{}, true, nil
}

// look reads a name's state, and makes its row where there is none.
func (t transactions) look(ctx context.Context, name string, aside driver.Aside) (state driver.State, err error) {
	err = aside(ctx, func(ctx context.Context, up driver.Upkeep) error {
		q := up.(upkeep).q
		states, err := look(ctx, q, "", []string{name})
		if err != nil {
			return interpret(err)
		}
		if len(states) == 0 {
			return interpret(q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: name}))
		}
		state = states[0]
		return nil
	})
	return state, err
}

// lock locks a name's row in the caller's transaction. It reports false where the row was purged just now, or is locked
// and must not be waited for.
func (t transactions) lock(ctx context.Context, tx *sql.Tx, q *mysqldb.Queries, name string, wait bool, aside driver.Aside) (mysqldb.LockRowRow, bool, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	row, err := q.LockRow(quiet, name)
	if there, err := found(err); there || err != nil || !wait {
		return row, there, err
	}
	var conn connection
	if err := tx.QueryRowContext(quiet, "SELECT CONNECTION_ID(), "+serverName).Scan(&conn.id, &conn.server); err != nil {
		return row, false, err
	}
	for {
		var awaited mysqldb.AwaitRowRow
		err := conn.cancellable(ctx, aside, func() (err error) {
			awaited, err = q.AwaitRow(quiet, name)
			return err
		}, func() {
			// A KILL that came late hits this statement, or none of the caller's: it was answered before.
			_, _ = tx.ExecContext(quiet, "DO 0")
		})
		if number(err) == lockWaitTimeout && !t.undone(ctx, aside) { // the server's patience is over, not ours
			if err = ctx.Err(); err == nil {
				continue
			}
		}
		there, err := found(err)
		return mysqldb.LockRowRow(awaited), there, err
	}
}

// undone reports whether a lock wait that timed out has rolled the whole transaction back.
func (t transactions) undone(ctx context.Context, aside driver.Aside) bool {
	rollback := "ON" // where it cannot be known
	_ = aside(context.WithoutCancel(ctx), func(ctx context.Context, up driver.Upkeep) (err error) {
		rollback, err = variable(ctx, up.(upkeep).conn, "innodb_rollback_on_timeout", "innodb_rollback_on_timeout")
		return err
	})
	return rollback != "OFF"
}

// serverName tells one server from another, as in the generated queries.
const serverName = "CONCAT(@@hostname, ':', @@port, ':', @@server_id)"

// connection is that of a transaction of the caller's.
type connection struct {
	id     int64
	server string
}

// cancellable runs a statement on the connection, and has the server interrupt it when ctx ends; afterwards absorb must
// run one that may be interrupted in its place. An error that is not of the interruption comes as it is: it may have
// ended the transaction.
func (c connection) cancellable(ctx context.Context, aside driver.Aside, run func() error, absorb func()) error {
	over, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		for {
			_ = aside(context.WithoutCancel(ctx), func(ctx context.Context, up driver.Upkeep) error {
				select {
				case <-over:
					return nil
				default:
					return c.interrupt(ctx, up.(upkeep).conn)
				}
			})
			select {
			case <-over:
				return
			case <-time.After(killPause):
			}
		}
	})
	err := run()
	close(over)
	if stop() {
		return err
	}
	<-asked // no KILL is on its way any more
	absorb()
	if n := number(err); n != 0 && n != killed {
		return err
	}
	return errors.Join(ctx.Err(), err)
}

// interrupt ends what the connection is running, if it is on the server that is asked: elsewhere, its id is somebody
// else's.
func (c connection) interrupt(ctx context.Context, on *sql.Conn) error {
	var server string
	if err := on.QueryRowContext(ctx, "SELECT "+serverName).Scan(&server); err != nil || server != c.server {
		return err
	}
	_, err := on.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", c.id))
	return err
}

// text is a text that the generated code could not name the type of.
func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
