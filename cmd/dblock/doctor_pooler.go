package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// pooler finds out whether something in between lends server connections by the transaction.
//
// Such a pooler may lend the same one each time, above all when it is idle. So a second connection
// opens a transaction directly after the first one was served. If the second gets the backend of
// the first, the pooler has shown itself. If it gets another, and the pooler has moved the first
// meanwhile, the first shows it. (postgres.Advisory looks in the same way.)
func pooler(ctx context.Context, e *examination) ([]finding, error) {
	one, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer one.Close()
	other, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	said, mine, err := backends(ctx, one)
	if err != nil {
		return nil, err
	}
	for range 3 { // on a busy one each look is a fresh chance
		moved, err := moves(ctx, one, other, mine)
		switch {
		case err != nil:
			return found(problem(fmt.Sprintf("no transaction of several statements can be made: %v", err), "let the pooler pool sessions or transactions, not statements"))
		case moved:
			e.lends = true
			return found(note("a pooler in between lends server connections by the transaction: clients poll every 100 ms instead of listening, and postgres.Advisory is refused",
				"pool sessions (PgBouncer: pool_mode = session), or connect directly, for hand-overs in milliseconds"))
		}
	}
	if said != mine {
		return found(fine("a pooler in between keeps server connections for the session"))
	}
	return found(fine("no pooler was seen"))
}

// moves reports whether a connection's backend is not its own.
func moves(ctx context.Context, one, other *sql.Conn, mine uint32) (bool, error) {
	for range 2 { // a pooler that lends in turn shows itself
		if _, again, err := backends(ctx, one); err != nil || again != mine {
			return err == nil, err
		}
	}
	tx, err := other.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	var theirs uint32
	if err := tx.QueryRowContext(ctx, backend).Scan(&theirs); err != nil {
		return false, err
	}
	_, again, err := backends(ctx, one)
	return theirs == mine || again != mine, err
}

const backend = "SELECT pg_backend_pid()"

// backends are the process that the server named when it accepted a connection, and the one that
// serves it now. A pooler makes the first up.
func backends(ctx context.Context, conn *sql.Conn) (said, is uint32, err error) {
	err = raw(conn, func(c *pgx.Conn) error {
		said = c.PgConn().PID()
		return nil
	})
	if err == nil {
		err = conn.QueryRowContext(ctx, backend).Scan(&is)
	}
	return said, is, err
}

func raw(conn *sql.Conn, f func(c *pgx.Conn) error) error {
	return conn.Raw(func(c any) error { return f(c.(*stdlib.Conn).Conn()) })
}

// echo is how long a notification may take: as long as a client waits for its first.
const echo = 2 * time.Second

// listens sends itself a notification, as a client does before it relies on LISTEN. Behind a pooler
// of transactions it does not try: LISTEN would stay behind on a connection that others use.
func listens(ctx context.Context, e *examination) ([]finding, error) {
	switch {
	case e.standby:
		return found(unknown("a standby has no LISTEN", "ask the primary"))
	case e.lends:
		return found(note("nothing is heard through such a pooler: clients poll every 100 ms", "see pooler"))
	}
	channel := "dblock_doctor_" + rand.Text()
	conn, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var heard error
	err = raw(conn, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		if _, err := e.ExecContext(ctx, "SELECT pg_notify($1, '')", channel); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, echo)
		defer cancel()
		_, heard = c.WaitForNotification(within)
		_, err := c.Exec(ctx, "UNLISTEN *") // where it is not the connection's own, it must not stay
		return err
	})
	switch {
	case heard != nil && ctx.Err() == nil && pgconn.Timeout(heard):
		return found(note(fmt.Sprintf("a notification was sent and not heard within %v: clients poll every 100 ms", echo), "connect without a proxy in between"))
	case heard != nil:
		return nil, heard
	case err != nil:
		return nil, err
	}
	return found(fine("notifications arrive: a lock is handed over in milliseconds"))
}
