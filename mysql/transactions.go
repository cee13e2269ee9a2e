package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// transactions is what happens inside the caller's transactions. What has to be fresh at every
// isolation level, and must not lock the lock's row, is read on a connection of the engine's own
// beside.
type transactions struct{ engine *engine }

func (t transactions) queries(tx *sql.Tx) *mysqldb.Queries {
	return mysqldb.New(preparedTx{t.engine.prepared, tx})
}

// ReleaseTx leaves the queue as it is: the next waiter could only be read by a locking read of a
// range, which locks the neighbours' queues as well at the usual isolation level. It looks beside
// the transaction first, as LockTx does: a row that is held is there.
//
// A guarded transaction that is open is in the way: ErrGuarded. The name's row stays locked then.
func (t transactions) ReleaseTx(
	ctx context.Context, tx *sql.Tx, h driver.Held, _ driver.Detachment, onSideConn driver.OnSideConn,
) error {
	look, err := t.lookGuard(ctx, h, onSideConn)
	if err != nil {
		return err
	}
	row, there, err := t.lock(ctx, tx, h.Name, true)
	switch {
	case err != nil:
		return mysqlserver.Interpret(err)
	case !there: // lookGuard has found it
		return transaction.ErrUnproven
	}
	if !look.Made { // a Guard may have come in between, and none can from here on
		if look, err = t.lookGuard(ctx, h, onSideConn); err != nil {
			return err
		}
	}
	q := t.queries(tx)
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	if look.Made { // not where it is missing: to look for it there would lock the gap
		if err := t.seize(quiet, q, look.Attempt); err != nil {
			return ended(quiet, err)
		}
	}
	if h.Shared {
		return mysqlserver.Interpret(t.releaseShare(ctx, q, h, row.SharedUnits > 0, onSideConn))
	}
	released, err := q.ReleaseTx(quiet, mysqldb.ReleaseTxParams{Name: transaction.Hex(h.Name), Session: h.Session,
		Token: h.Token})
	switch {
	case err != nil || released > 0:
		return ended(quiet, err)
	case row.SessionID == h.Session && row.LastToken == h.Token && row.FirstToken == h.Token:
		return transaction.ErrUnproven
	}
	return driver.ErrNotHeld
}

// ended interprets an error of a statement in the caller's transaction.
func ended(quiet context.Context, err error) error {
	return mysqlserver.Interpret(transaction.Ended(quiet, quiet, err))
}

// seize is Seize in the caller's transaction, of a guard that is there. Where MariaDB would take
// the whole transaction back for NOWAIT, it skips a row that is locked, which keeps the gap after
// it.
func (t transactions) seize(ctx context.Context, q *mysqldb.Queries, attempt string) error {
	s := &source{ctx: ctx, q: q}
	if info := t.engine.info.Load(); !info.undoes || !info.mariaDB {
		return s.Seize(attempt, false)
	}
	_, err := q.SkipGuard(ctx, attempt)
	there, err := found(err)
	switch {
	case err != nil:
		return err
	case !there:
		return driver.Fail(driver.ErrGuarded, driver.ErrBusy)
	}
	return q.TouchGuard(ctx, attempt)
}

// releaseShare runs after lock: nobody else can change the shares of the name. It reads them beside
// the transaction, whose snapshot may be old; to read or delete there what is missing would lock
// the gap. Units that are not counted are not returned.
func (t transactions) releaseShare(
	ctx context.Context, q *mysqldb.Queries, h driver.Held, counted bool, onSideConn driver.OnSideConn,
) error {
	var share mysqldb.FindShareRow
	err := onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) (err error) {
		var there bool
		share, there, err = find(ctx, up.(upkeep).q.FindShare, mysqldb.FindShareParams{Name: h.Name, Token: h.Token})
		if err == nil && (!there || share.SessionID != h.Session) {
			return driver.ErrNotHeld
		}
		return mysqlserver.Interpret(err)
	})
	if err != nil {
		return err
	}
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	that := mysqldb.DropShareParams{Name: transaction.Hex(h.Name), Token: h.Token}
	dropped, err := q.DropShare(quiet, that)
	if err == nil && dropped == 0 { // it may have been cut short
		dropped, err = q.DropShare(quiet, that)
	}
	switch {
	case err != nil || dropped == 0: // this transaction has released it before
		return notHeld(ended(quiet, err))
	case !counted:
		return nil
	}
	return q.ReturnUnits(quiet, mysqldb.ReturnUnitsParams{Name: transaction.Hex(h.Name), Units: int64(share.Units)})
}

// text is a text that the generated code could not name the type of.
func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
