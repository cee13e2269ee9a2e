package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// inTx runs the steps inside one of the caller's transactions. Facts that must be fresh at every
// isolation level, and must not lock the lock's row, are read on another connection.
type inTx struct {
	engine *engine
	tx     *sql.Tx
}

func (t inTx) queries() *mysqldb.Queries {
	return mysqldb.New(preparedTx{t.engine.prepared, t.tx})
}

// open returns ErrTxDone unless the transaction is open in the server, and else what look returns,
// which reads on another connection at the same time. MUST be called before a statement of the step
// locks or writes: outside of a transaction each would commit by itself.
func (t inTx) open(ctx context.Context, look func() error) error {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	proof := make(chan error, 1)
	go func() { proof <- t.prove(quiet) }()
	err := look()
	if not := <-proof; not != nil {
		return ended(quiet, not)
	}
	return err
}

func (t inTx) prove(quiet context.Context) error {
	if err := t.engine.meet(quiet, t.tx); err != nil {
		return err
	}
	return transaction.OpenMySQL(quiet, transaction.On(t.tx), t.engine.server().facts().open)
}

// Release leaves the queue unchanged: finding the next waiter would take a locking read of a
// range, which at the usual isolation level locks the neighbours' queues as well. Release first
// reads outside the transaction, as LockTx does, so that a held row is known to exist.
//
// If a guarded transaction is open, Release fails with ErrGuarded. The name's row stays locked
// then.
func (t inTx) Release(
	ctx context.Context, h protocol.Held, _ protocol.Detachment, onSideConn driver.OnSideConn,
) error {
	var look mysqldb.LookGuardRow
	err := t.open(ctx, func() (err error) {
		look, err = t.lookGuard(ctx, h, onSideConn)
		return err
	})
	if err != nil {
		return err
	}
	row, there, err := t.lock(ctx, h.Name, true)
	switch {
	case err != nil:
		return mysqlserver.Interpret(err)
	case !there: // lookGuard has found the row
		return transaction.ErrUnproven
	case row.Token < h.Token: // an optimistic transaction of TiDB reads its snapshot here, too
		return errOlder
	}
	if !look.Made { // a Guard may have come in between; none can from here on
		if look, err = t.lookGuard(ctx, h, onSideConn); err != nil {
			return err
		}
	}
	q := t.queries()
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	if look.Made { // reading a missing guard would lock the gap
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

// seize is Seize of an existing guard in the caller's transaction. If a server would roll back the
// whole transaction for NOWAIT, seize skips a locked row instead, which still locks the gap after
// it.
func (t inTx) seize(ctx context.Context, q *mysqldb.Queries, attempt string) error {
	s := &source{ctx: ctx, q: q}
	if !t.engine.info.Load().undoes {
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

// releaseShare runs after lock, so no other transaction can change the shares of the name. It reads
// the share outside the transaction, whose snapshot may be old: reading or deleting a missing row
// inside would lock the gap. Units that are not counted are not returned.
func (t inTx) releaseShare(
	ctx context.Context, q *mysqldb.Queries, h protocol.Held, counted bool, onSideConn driver.OnSideConn,
) error {
	var share mysqldb.FindShareRow
	err := onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) error {
		return up.(upkeep).lone(ctx, func(q *mysqldb.Queries) (err error) {
			var there bool
			share, there, err = find(ctx, q.FindShare, mysqldb.FindShareParams{Name: h.Name, Token: h.Token})
			if err == nil && (!there || share.SessionID != h.Session) {
				return driver.ErrNotHeld
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	that := mysqldb.DropShareParams{Name: transaction.Hex(h.Name), Token: h.Token}
	dropped, err := q.DropShare(quiet, that)
	if err == nil && dropped == 0 { // the first statement may have been cut short
		dropped, err = q.DropShare(quiet, that)
	}
	switch {
	case err != nil || dropped == 0: // this transaction released the share before
		return notHeld(ended(quiet, err))
	case !counted:
		return nil
	}
	return q.ReturnUnits(quiet, mysqldb.ReturnUnitsParams{Name: transaction.Hex(h.Name), Units: int64(share.Units)})
}

// text converts a text whose type the generated code could not name.
func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
