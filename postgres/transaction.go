package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/transaction"
)

// callersTx is a transaction of the caller.
type callersTx interface {
	exec(ctx context.Context, s ...statement) error
	// seen returns the statements prepared on the connection, a map kept with the connection; nil
	// if preparation makes no difference.
	seen() map[string]any
}

type pgxTx struct{ tx pgx.Tx }

// exec sends nothing in a transaction that is not readable: after an error in the middle of a
// batch, the server would run the rest.
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

func (t pgxTx) seen() map[string]any { return t.tx.Conn().PgConn().CustomData() }

type sqlTx struct{ tx *sql.Tx }

func (sqlTx) seen() map[string]any { return nil } // statements go one by one

func (t sqlTx) exec(ctx context.Context, statements ...statement) error {
	for _, s := range statements {
		if err := transaction.Ended(ctx, ctx, execute(ctx, t.tx, s)); err != nil {
			return err
		}
	}
	return nil
}

var (
	savepoint  = statement{sql: "SAVEPOINT dblock"}
	release    = statement{sql: "RELEASE SAVEPOINT dblock"}
	rollbackTo = statement{sql: "ROLLBACK TO SAVEPOINT dblock"}
)

// undo rolls the transaction back to the savepoint. If that fails, the connection is gone, or the
// caller's transaction was aborted before and has no savepoint.
func undo(ctx context.Context, t callersTx) {
	ctx, cancel := transaction.Lenient(ctx)
	defer cancel()
	if err := t.exec(ctx, rollbackTo); err == nil {
		_ = t.exec(ctx, release)
	}
}
