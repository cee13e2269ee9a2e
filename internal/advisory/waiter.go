package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

const (
	// waiterTimeout bounds the idle time of the transaction in which a waiter keeps its place: a
	// process that is stopped while it is the first of a queue must not stay the first. A waiter
	// that continues needs its place for one round trip. Without a transaction this would need
	// idle_session_timeout, which PostgreSQL 13 does not have.
	waiterTimeout = "SET idle_in_transaction_session_timeout = '10s';"
	// waiterCheck lets the server notice that a client has gone while its statement waits. On some
	// systems this setting fails.
	waiterCheck = `SELECT set_config(name, '1s', false) FROM pg_catalog.pg_settings WHERE name = 'client_connection_check_interval'`
)

// waiter is a sessionlock.Waiter.
type waiter struct {
	conn   *pgx.Conn
	server string
	first  bool // has the key of the queue
}

// Waiter opens a connection to wait on.
func (s server) Waiter(ctx context.Context) (sessionlock.Waiter[keys], error) {
	conn, err := s.open(ctx)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	w := &waiter{conn: conn}
	if w.server, err = whichServer(ctx, conn); err == nil {
		if _, err = simple(ctx, conn, noTimeouts+waiterTimeout); err == nil {
			if _, err = simple(ctx, conn, waiterCheck); !conn.IsClosed() {
				err = nil
			}
		}
	}
	if err != nil {
		pgserver.Shut(conn)
		return nil, pgserver.Interpret(err)
	}
	return w, nil
}

func (w *waiter) Server() string { return w.server }
func (w *waiter) Close()         { pgserver.Shut(w.conn) }

// Wait takes the queue, and then the lock only for the length of the statement: it only has to see
// the lock free. If the session ends before that, it has neither, however late the connection is
// closed.
func (w *waiter) Wait(ctx context.Context, key keys, shared bool) error {
	mode := ""
	if shared {
		mode = "_shared"
	}
	sql := fmt.Sprintf("SELECT pg_advisory_lock%[1]s(%[2]d); SELECT pg_advisory_unlock%[1]s(%[2]d)", mode, key.lock)
	if !w.first {
		sql = fmt.Sprintf(pgserver.Begin+"; SELECT pg_advisory_lock(%d); ", key.queue) + sql
	}
	_, err := cancellable(ctx, w.conn.PgConn(), func(ctx context.Context) error {
		_, err := simple(ctx, w.conn, sql)
		return err
	})
	if err == nil {
		w.first = true
		return nil
	}
	if !w.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
		defer cancel()
		// On failure the locks end with the connection, a moment later.
		_, _ = simple(ctx, w.conn, "ROLLBACK; SELECT pg_advisory_unlock_all()")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return pgserver.Interpret(err)
}

func (w *waiter) Leave(ctx context.Context, key keys) error {
	w.first = false
	answers, err := simple(ctx, w.conn, fmt.Sprintf("COMMIT; SELECT pg_advisory_unlock(%d)", key.queue))
	switch {
	case err != nil:
		return pgserver.Interpret(err)
	case answers[0] != "t":
		return driver.Fail(driver.ErrUnavailable, errors.New("something unlocked the queue on the waiter's connection"))
	}
	return nil
}
