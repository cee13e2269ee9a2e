package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// sqlDB is a database over database/sql.
type sqlDB struct{ db *sql.DB }

func (d sqlDB) validate() error {
	if d.db == nil {
		return pgserver.ErrNilPool
	}
	return connpool.Enough(d.db.Stats().MaxOpenConnections, "SetMaxOpenConns(3)")
}

func (d sqlDB) connections() driver.Pool {
	s := d.db.Stats()
	return driver.Pool{InUse: s.InUse, Most: s.MaxOpenConnections, Kept: connpool.Kept(d.db)}
}

func (d sqlDB) dropReadOnly(ctx context.Context) {
	connpool.EachIdle(ctx, d.db, func(conn *sql.Conn) {
		if readOnly(ctx, sqlConn{conn}) {
			_ = sqlConn{conn}.close()
		}
	})
}

func (d sqlDB) exec(ctx context.Context, s statement) error { return execute(ctx, d.db, s) }

// transact runs statements one by one. If the process is stopped between two of them, the
// transaction keeps the name's row locked. So the server ends a transaction that is silent for half
// of the time that ctx leaves. That setting travels with BEGIN, without a round trip.
func (d sqlDB) transact(ctx context.Context, statements ...statement) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	return tx.commit(ctx, statements...)
}

func (d sqlDB) begin(ctx context.Context, statements ...statement) (opened, error) {
	conn, err := d.beginOn(ctx)
	if err != nil {
		return nil, err
	}
	tx := sqlOpened{conn}
	if err := tx.exec(ctx, statements...); err != nil {
		tx.rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// sqlOpened is a transaction on a connection of the pool.
type sqlOpened struct{ conn *sql.Conn }

func (t sqlOpened) exec(ctx context.Context, statements ...statement) error {
	for _, s := range statements {
		if err := execute(ctx, t.conn, s); err != nil {
			return err
		}
	}
	return nil
}

func (t sqlOpened) commit(ctx context.Context, statements ...statement) error {
	ended, err := finish(ctx, t.conn, statements)
	return driver.Join(err, t.giveBack(ended))
}

func (t sqlOpened) rollback(ctx context.Context) { _ = t.giveBack(rolledBack(ctx, t.conn)) }

// giveBack closes a connection whose transaction may still be open: the pool must not lend it.
func (t sqlOpened) giveBack(ended bool) error {
	if !ended {
		_ = sqlConn(t).close()
		return nil
	}
	return ignoreClosed(t.conn.Close())
}

// finish runs statements in a transaction that has begun, and ends it. If ended is false, the
// transaction may still be open.
func finish(ctx context.Context, conn *sql.Conn, statements []statement) (ended bool, err error) {
	for _, s := range statements {
		if err = execute(ctx, conn, s); err != nil {
			break
		}
	}
	if err == nil {
		if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
			return true, nil
		}
	}
	return rolledBack(ctx, conn), err
}

func rolledBack(ctx context.Context, conn *sql.Conn) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err == nil
}

// beginOn begins a transaction on a connection of the pool, and tries another connection if that
// one was broken.
func (d sqlDB) beginOn(ctx context.Context) (*sql.Conn, error) {
	text := beginOverSQL(ctx)
	for tries := 1; ; tries++ {
		conn, err := d.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, text); err == nil {
			return conn, nil
		}
		_ = sqlConn{conn}.close()
		if !errors.Is(err, sqldriver.ErrBadConn) || tries > 2 {
			return nil, err
		}
	}
}

func beginOverSQL(ctx context.Context) string {
	return fmt.Sprintf("%s; SET LOCAL client_encoding = UTF8; SET LOCAL idle_in_transaction_session_timeout = %d",
		pgserver.Begin, silence(ctx).Milliseconds())
}

type queryer interface {
	QueryContext(ctx context.Context, sql string, args ...any) (*sql.Rows, error)
}

func execute(ctx context.Context, q queryer, s statement) (err error) {
	rows, err := q.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer func() { err = driver.Join(err, rows.Close()) }()
	answered := false
	for rows.Next() {
		answered = true
		if s.row == nil {
			continue
		}
		if err := s.row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil || answered || !s.acts {
		return err
	}
	return transaction.ErrSwallowed
}

// reserve names a connection that never returns to the pool: close ends it.
func (d sqlDB) reserve(ctx context.Context, app string) (connection, error) {
	conn, err := d.db.Conn(ctx)
	if p := d.connections(); err != nil && ctx.Err() != nil && !p.Left() {
		return nil, driver.Fail(driver.ErrUnavailable, fmt.Errorf(
			"dblock needs a connection of its own, and %s: raise SetMaxOpenConns (see postgres.NewSQL): %w", p.Full(),
			err))
	}
	if err != nil {
		return nil, err
	}
	reserved := sqlConn{conn}
	if err := reserved.exec(ctx, named(app)); err != nil {
		_ = reserved.close()
		return nil, err
	}
	return reserved, nil
}

func (d sqlDB) source() any { return d.db }

// orphaned is as of database. The Close of database/sql waits for no connection, and a pgxpool
// below OpenDBFromPool is hidden.
func (sqlDB) orphaned() error { return nil }

func (d sqlDB) spare() (most int, early bool) {
	return spareOf(d.db.Stats().MaxOpenConnections), true
}

type sqlConn struct{ conn *sql.Conn }

func (c sqlConn) exec(ctx context.Context, s statement) error { return execute(ctx, c.conn, s) }

func (c sqlConn) transact(ctx context.Context, statements ...statement) error {
	if _, err := c.conn.ExecContext(ctx, beginOverSQL(ctx)); err != nil {
		return err
	}
	ended, err := finish(ctx, c.conn, statements)
	if !ended { // the connection is not kept
		err = driver.Fail(driver.ErrUnavailable, err)
	}
	return err
}

// listenable returns a connection that is used outside of Raw. Raw would hold the mutex of
// database/sql's connection as long as the listener waits, and the Close of every statement that
// the application has prepared on the connection waits for that mutex. Use outside of Raw is safe:
// database/sql does not touch a reserved connection, and a sharedConn gives it one user at a time.
func (c sqlConn) listenable() (conn *pgx.Conn) {
	_ = c.conn.Raw(func(raw any) error { conn = below(raw); return nil })
	return conn
}

// close ends the connection instead of returning it to the pool, since one of its statements may be
// unanswered.
func (c sqlConn) close() error {
	done := make(chan error, 1)
	go func() {
		_ = c.conn.Raw(func(raw any) error {
			// Behind stdlib.OpenDBFromPool the connection would return to a pgxpool unchanged.
			if conn := below(raw); conn != nil {
				_ = pgserver.Close(conn)
			}
			return sqldriver.ErrBadConn
		})
		done <- ignoreClosed(c.conn.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(pgserver.CleanupTimeout):
		return nil
	}
}

// ignoreClosed drops the error of Close for a connection that is closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// below returns the connection of pgx below one of database/sql; nil: there is none, or it is
// hidden.
func below(raw any) *pgx.Conn {
	for range 8 {
		switch c := raw.(type) {
		case interface{ Conn() *pgx.Conn }: // *stdlib.Conn, which is not imported: it registers drivers
			return c.Conn()
		case interface{ Raw() sqldriver.Conn }: // a wrapper, such as otelsql's
			raw = c.Raw()
		default:
			return nil
		}
	}
	return nil
}
