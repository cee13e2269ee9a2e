package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// DropReadOnly takes as many connections as are idle, so that each of them is looked at.
func (e *engine) DropReadOnly(ctx context.Context) {
	for range e.db.Stats().Idle {
		conn, err := e.db.Conn(ctx)
		if err != nil {
			return
		}
		defer conn.Close()
		if readOnly(ctx, conn) {
			mysqlserver.Discard(conn)
		}
	}
}

// readOnly reports whether a connection's server, or its session, accepts no writes. The variable
// of a session has two names, of which a server may know one.
func readOnly(ctx context.Context, conn *sql.Conn) bool {
	return conn.QueryRowContext(ctx, `SHOW SESSION VARIABLES WHERE Value = 'ON'
		AND Variable_name IN ('read_only', 'transaction_read_only', 'tx_read_only')`).Scan(new(string), new(string)) == nil
}
