package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

// inTx runs the steps inside one of the caller's transactions, all of them behind a savepoint.
type inTx struct {
	tx     callersTx
	tables *tables.Place
}

var restoreLockTimeout = query(postgresdb.RestoreLockTimeout, struct{}{})

// borrowed is a statement that sets the lock timeout of the caller's transaction. The transaction
// MUST be readable, because a release writes back texts that it has read.
func borrowed(s statement) statement { return s.examine(new(string), new(string)) }

func borrowLockTimeout(timeout string) statement {
	return borrowed(query(postgresdb.BorrowLockTimeout, timeout))
}

// Release hands the lock on within the transaction: at the commit the next waiters hold it and
// are notified. The caller decides whether that commit waits for the disk. The session itself is
// notified as well, since no other statement does so.
func (t inTx) Release(
	ctx context.Context, h protocol.Held, _ protocol.Detachment, _ driver.OnSideConn,
) error {
	x := t.tx
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	s := &source{ctx: quiet, tx: x, name: h.Name}
	r := protocol.Release(h, true, true)
	r.Self = ""
	if err := t.waiting(ctx, x, true, append(s.open(query(postgresdb.LockRow, h.Name), r),
		restoreLockTimeout)...); err != nil {
		return pgserver.Interpret(err)
	}
	n := s.read()
	released, err := r.Apply(n)
	left := released.Done()
	var row postgresdb.IsHeldRow
	switch {
	case err == nil && left:
		err = x.exec(quiet, append(write(n, postgresdb.AddEvent), tell(n, false), release)...)
	case err == nil:
		err = x.exec(quiet, isHeld(h).found(&row, new(bool)))
	}
	if err == nil && left {
		return nil
	}
	undo(ctx, x)
	switch {
	case err != nil:
		return pgserver.Interpret(err)
	case row.Unseen:
		return pgserver.Interpret(tooOld)
	}
	return driver.ErrNotHeld
}

func (t inTx) Lock(
	ctx context.Context, name string, may driver.Pass, wait bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	x := t.tx
	var row postgresdb.LockRowTxRow
	for {
		err := t.waiting(ctx, x, wait,
			ensureRow(name),
			query(postgresdb.LockRowTx, name).inTurn(&row, func() {}),
			restoreLockTimeout,
		)
		switch {
		case !wait && pgserver.State(err) == pgserver.LockNotAvailable:
			return driver.State{}, false, nil
		case err != nil:
			return driver.State{}, false, pgserver.Interpret(err)
		case !row.There:
			undo(ctx, x) // purged in between: make it again
			continue
		case row.Free || row.Attempt != "" && may(row.Attempt, int(row.Waiters), row.Transaction):
			return driver.State{Database: row.Database}, true, pgserver.Interpret(keepSavepoint(ctx, x))
		}
		state, err := inTheWay(ctx, x, name)
		undo(ctx, x)
		state.Database = row.Database
		return state, false, pgserver.Interpret(err)
	}
}

func (t inTx) Database(ctx context.Context) (id string, err error) {
	x := t.tx
	var there bool
	err = t.behind(ctx, x,
		borrowLockTimeout(briefly), query(postgresdb.Database, struct{}{}).found(&id, &there), restoreLockTimeout,
		release)
	return id, pgserver.Interpret(err)
}

// inTheWay reads the holder, or the cool-down, of a name whose row the transaction has locked.
func inTheWay(ctx context.Context, x callersTx, name string) (driver.State, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	var rows []inspection.Row
	err := x.exec(quiet, read("", []string{name}, 0, &rows))
	return append(inspection.States("", 0, rows), driver.State{})[0], err
}

// behind runs statements behind a savepoint. After an error the transaction is back at the
// savepoint; otherwise one of the statements, or keepSavepoint or undo, has to end it. ctx ends the
// wait for an answer late, so that it does not end the transaction.
func (t inTx) behind(ctx context.Context, x callersTx, statements ...statement) error {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	err := t.exec(quiet, x, statements)
	if err != nil {
		undo(ctx, x)
	}
	return err
}

// exec puts the savepoint in front. pgx prepares the statements of a batch before it runs the
// first. On a connection where that is still to be done for one of them, and may fail because
// tables are missing, the savepoint goes alone.
func (t inTx) exec(ctx context.Context, x callersTx, statements []statement) error {
	seen := x.seen()
	texts := make([]string, len(statements))
	known := true
	for i, s := range statements {
		texts[i] = t.tables.In().Postgres(s.sql)
		known = known && seen[texts[i]] != nil
	}
	if known {
		return x.exec(ctx, append([]statement{savepoint}, statements...)...)
	}
	err := x.exec(ctx, savepoint)
	if err == nil {
		err = x.exec(ctx, statements...)
	}
	if err == nil && seen != nil {
		for _, text := range texts {
			seen[text] = true
		}
	}
	return err
}

// waiting is behind for statements that may wait for rows. They wait briefly at first, and then in
// turns, each with a savepoint of its own, until ctx ends. waiting sends no request to cancel: one
// that a network or a pooler delays would hit a later statement of the connection.
//
// The first deadlock is tried again. A transaction that waits for a row sleeps until the end of the
// whole transaction that has it, also where that one returns to a savepoint. If that one then waits
// for the row again, behind the sleeper, the server sees a cycle, which the sleeper's turn ends. A
// cycle that is one is seen again.
func (t inTx) waiting(ctx context.Context, x callersTx, wait bool, statements ...statement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.behind(ctx, x, append([]statement{borrowLockTimeout(briefly)}, statements...)...)
	for again := true; wait && ctx.Err() == nil; {
		cycle := pgserver.State(err) == pgserver.Deadlock && again
		if !cycle && pgserver.State(err) != pgserver.LockNotAvailable {
			break
		}
		again = again && !cycle
		err = t.behind(ctx, x, append([]statement{borrowTurn(ctx)}, statements...)...)
	}
	if err != nil && ctx.Err() != nil {
		err = driver.Join(ctx.Err(), err)
	}
	return err
}

// borrowTurn makes the following statements wait for rows for a turn, or until ctx ends.
func borrowTurn(ctx context.Context) statement {
	var remaining int64
	if deadline, ok := ctx.Deadline(); ok {
		remaining = max(time.Until(deadline).Milliseconds(), 1)
	}
	return borrowed(query(postgresdb.BorrowTurn, remaining))
}

// keepSavepoint keeps the changes behind the savepoint.
func keepSavepoint(ctx context.Context, x callersTx) error {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	return x.exec(quiet, release)
}
