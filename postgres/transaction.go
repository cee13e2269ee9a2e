package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// callersTx is a transaction of the caller's.
type callersTx interface {
	exec(ctx context.Context, s ...statement) error
	// seen is kept with the connection: what has been prepared on it. nil where that makes no
	// difference.
	seen() map[string]any
	// interrupt asks the server to cancel what the transaction is running. It returns when the
	// server has seen that; false where there is no way to ask.
	interrupt(ctx context.Context) bool
	// longLockTimeout makes the statements that follow wait for rows until they are interrupted, or
	// for a turn.
	longLockTimeout(ctx context.Context) statement
}

type pgxTx struct{ tx pgx.Tx }

// exec sends nothing in a transaction that is not readable: behind a refusal in the middle of a batch
// the server would run the rest.
func (t pgxTx) exec(ctx context.Context, statements ...statement) error {
	if err := readableConn(t.tx.Conn()); err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, s := range statements {
		s.queue(b)
	}
	return t.tx.SendBatch(ctx, b).Close()
}

func (t pgxTx) interrupt(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pgserver.CleanupTimeout)
	defer cancel()
	_ = t.tx.Conn().PgConn().CancelRequest(ctx) // where it fails, the next one may not
	return true
}

func (pgxTx) longLockTimeout(context.Context) statement { return borrowLockTimeout("0") }

func (t pgxTx) seen() map[string]any { return t.tx.Conn().PgConn().CustomData() }

type sqlTx struct{ tx *sql.Tx }

func (sqlTx) seen() map[string]any { return nil } // statements go one by one

func (t sqlTx) exec(ctx context.Context, statements ...statement) error {
	for _, s := range statements {
		if err := execute(ctx, t.tx, s); err != nil {
			return err
		}
	}
	return nil
}

func (sqlTx) interrupt(context.Context) bool { return false }

func (sqlTx) longLockTimeout(ctx context.Context) statement {
	var remaining int64
	if deadline, ok := ctx.Deadline(); ok {
		remaining = max(time.Until(deadline).Milliseconds(), 1)
	}
	return borrowed(query(postgresdb.BorrowTurn, remaining))
}

var (
	savepoint  = statement{sql: "SAVEPOINT dblock"}
	release    = statement{sql: "RELEASE SAVEPOINT dblock"}
	rollbackTo = statement{sql: "ROLLBACK TO SAVEPOINT dblock"}
)

// undo takes the transaction back to the savepoint. A request to cancel that came late may hit the
// first try: the signal was sent before, so that it cannot come later than this.
func undo(ctx context.Context, t callersTx) {
	ctx, cancel := transaction.Lenient(ctx)
	defer cancel()
	for range 3 {
		if err := t.exec(ctx, rollbackTo); err == nil {
			_ = t.exec(ctx, release)
			return
		} else if pgserver.State(err) != pgserver.QueryCanceled {
			return // the connection is gone, or the caller's transaction was aborted before: there is no savepoint
		}
	}
}
