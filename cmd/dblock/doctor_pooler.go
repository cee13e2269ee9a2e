package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// pooling tells how a pooler lends PostgreSQL's connections.
type pooling int

const (
	unknownPooling pooling = iota
	noPooler
	bySession
	byTransaction // or by the statement
)

// pooler detects a pooler that lends server connections by the transaction.
//
// Such a pooler may lend the same connection each time, above all when it is idle. So a second
// connection opens a transaction directly after the first one was served. If the second gets the
// first one's backend, the pooler is detected. If it gets another backend, and the pooler has moved
// the first connection meanwhile, a query on the first shows it. (postgres.Advisory detects poolers
// in the same way.)
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
	for range 3 { // on a busy one each attempt is a new chance
		moved, err := e.moves(ctx, one, other, mine)
		switch {
		case errors.Is(err, errRefused):
			e.pooling = byTransaction
			return found(problem(err.Error(), "let the pooler pool sessions or transactions, not statements"))
		case err != nil:
			return nil, err
		case moved:
			e.pooling = byTransaction
			return found(note("a pooler in between lends server connections by the transaction: clients poll "+
				"instead of listening, and postgres.Advisory is refused",
				"for hand-overs in milliseconds let clients listen past it: postgres.New(pool, "+
					"postgres.Listen(dsn)), with a DSN of the database itself; or pool sessions (PgBouncer: "+
					"pool_mode = session), or connect directly"))
		}
	}
	if said != mine {
		e.pooling = bySession
		return found(fine("a pooler in between keeps server connections for the session"))
	}
	e.pooling = noPooler
	return found(fine("no pooler was seen"))
}

// errRefused means that a transaction of several statements cannot be made.
var errRefused = errors.New("no transaction of several statements can be made")

// moves reports whether a connection's backend changes, or is shared with another connection.
func (e *examination) moves(ctx context.Context, one, other *sql.Conn, mine uint32) (bool, error) {
	for range 2 { // detects a pooler that lends in turn
		if _, again, err := backends(ctx, one); err != nil || again != mine {
			return err == nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.lend,
		fmt.Errorf("two connections were not served at a time within %v: a pooler in between may have none to lend",
			e.lend))
	defer cancel()
	tx, err := other.BeginTx(ctx, nil)
	if err != nil {
		return false, refusal(ctx, err)
	}
	defer tx.Rollback()
	var theirs uint32
	if err := tx.QueryRowContext(ctx, backend).Scan(&theirs); err != nil {
		return false, refusal(ctx, err)
	}
	if theirs == mine { // it may be the pooler's last: no client is to wait for it
		return true, nil
	}
	_, again, err := backends(ctx, one)
	if err != nil {
		return false, because(ctx, err)
	}
	return again != mine, nil
}

// refusal returns errRefused with the server's error, if that is about transactions. PgBouncer has
// one code for all of its errors.
func refusal(ctx context.Context, err error) error {
	var server *pgconn.PgError
	switch {
	case ctx.Err() != nil || !errors.As(err, &server):
		return because(ctx, err)
	case strings.HasPrefix(server.Code, "53"), strings.HasPrefix(server.Code, "57"):
		// out of resources; an operator has intervened
		return err
	// of PgBouncer, for a client that it has no connection for
	case server.Message == "query_wait_timeout":
		return err
	}
	return fmt.Errorf("%w: %w", errRefused, err)
}

const backend = "SELECT pg_backend_pid()"

// backends returns the process that the server named when it accepted a connection, and the one
// that serves it now. A pooler invents the first.
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

// listens sends itself a notification, as a client does before it relies on LISTEN. It does not try
// if a pooler of transactions may be in between: LISTEN would remain on a connection that others
// use.
func listens(ctx context.Context, e *examination) ([]finding, error) {
	switch {
	case e.standby:
		return found(unknown("a standby has no LISTEN", "ask the primary"))
	case e.pooling == unknownPooling:
		return found(unknown("it is not known whether a pooler is in between, on whose connections LISTEN would "+
			"stay behind", "see pooler"))
	case e.pooling == byTransaction:
		return found(note("nothing is heard through such a pooler: clients poll", "see pooler"))
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
		within, cancel := context.WithTimeout(ctx, e.echo)
		defer cancel()
		_, heard = c.WaitForNotification(within)
		_, err := c.Exec(ctx, "UNLISTEN *") // on a shared connection it must not remain
		return err
	})
	switch {
	case heard != nil && ctx.Err() == nil && pgconn.Timeout(heard):
		return found(note(fmt.Sprintf("a notification was sent and not heard within %v: clients poll", e.echo),
			"connect without a proxy in between"))
	case heard != nil:
		return nil, heard
	case err != nil:
		return nil, err
	}
	return found(fine("notifications arrive: a lock is handed over in milliseconds"))
}
