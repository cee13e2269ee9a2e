package advisory

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/foreign"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// The application sets these timeouts for its own statements: a lock may be held and waited for
// longer. pg_settings lists those that a server has.
var (
	timeouts = []string{"statement_timeout", "lock_timeout", "transaction_timeout", "idle_session_timeout",
		"idle_in_transaction_session_timeout"}
	noTimeouts = "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN ('" +
		strings.Join(timeouts, "', '") + "');"
)

// open opens a connection beside the pool, with a read that can be interrupted.
func (s server) open(ctx context.Context) (*pgx.Conn, error) {
	return pgserver.Connect(ctx, s.pool.Config(), s.app, func(config *pgx.ConnConfig) {
		// noTimeouts would come too late: it must wait until the session is known not to be a
		// pooler's.
		for _, timeout := range timeouts {
			if config.RuntimeParams[timeout] != "" {
				config.RuntimeParams[timeout] = "0"
			}
		}
		// It is tempting to leave this to the application's handler, but a handler that asks the
		// server to cancel when a context ends would do so each time that Watch is interrupted.
		config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
	})
}

// whichServer identifies the running server, by the moment of its start. It refuses a server whose
// advisory locks do not exclude.
func whichServer(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := simple(ctx, conn, "SELECT version(); SELECT (extract(epoch FROM pg_postmaster_start_time()) * "+
		"1000000)::int8")
	if len(rows) > 0 { // the answer of such a server to the second statement does not matter
		err = driver.Join(foreign.Refuse(rows[0]), err)
	}
	if err != nil {
		return "", err
	}
	return "server started at " + rows[1] + " µs", nil
}

// simple runs statements by the simple protocol, which every pooler understands, and returns the
// first column of each row.
func simple(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	var values []string
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			values = append(values, string(row[0]))
		}
	}
	return values, err
}
