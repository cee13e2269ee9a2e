package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

func (e *engine) DropReadOnly(ctx context.Context) {
	connpool.EachIdle(ctx, e.db, func(conn *sql.Conn) {
		if readOnly(ctx, conn) {
			mysqlserver.Discard(conn)
		}
	})
}

// readOnly reports whether a connection's server, or its session, accepts no writes. The session's
// variable has two names, and a server may know only one.
func readOnly(ctx context.Context, conn *sql.Conn) bool {
	return conn.QueryRowContext(ctx, `SHOW SESSION VARIABLES WHERE Value = 'ON'
		AND Variable_name IN ('read_only', 'transaction_read_only', 'tx_read_only')`).Scan(new(string), new(string)) == nil
}
