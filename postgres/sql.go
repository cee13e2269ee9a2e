package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// sqlDB is a database over database/sql.
type sqlDB struct{ db *sql.DB }

func (d sqlDB) validate() error {
	if d.db == nil {
		return driver.Fail(driver.ErrConfig, errNilPool)
	}
	if n := d.db.Stats().MaxOpenConnections; n == 1 || n == 2 {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("the pool allows %d connections; heartbeats need one of their own, work that may wait for a row another, and all other work a third: SetMaxOpenConns(3) or more", n))
	}
	return nil
}

func (d sqlDB) connections() (inUse, most int) {
	s := d.db.Stats()
	return s.InUse, s.MaxOpenConnections
}

func (d sqlDB) exec(ctx context.Context, s statement) error { return execute(ctx, d.db, s) }

func (d sqlDB) transact(ctx context.Context, statements ...statement) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	for _, s := range statements {
		if err := execute(ctx, tx, s); err != nil {
			return errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}
	err = tx.Commit()
	if errors.Is(err, sql.ErrTxDone) { // its context ended, and database/sql has rolled it back
		return driver.Fail(driver.ErrUnavailable, errors.Join(ctx.Err(), err))
	}
	return err
}

// ignoreDone drops what Rollback says of a transaction that its context has rolled back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

type queryer interface {
	QueryContext(ctx context.Context, sql string, args ...any) (*sql.Rows, error)
}

func execute(ctx context.Context, q queryer, s statement) (err error) {
	rows, err := q.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if s.row == nil {
			continue
		}
		if err := s.row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d sqlDB) reserve(ctx context.Context) (connection, error) {
	conn, err := d.db.Conn(ctx)
	if s := d.db.Stats(); err != nil && ctx.Err() != nil && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return nil, driver.Fail(driver.ErrUnavailable, fmt.Errorf(
			"all %d connections of the pool are in use, and dblock needs one of its own: raise SetMaxOpenConns (see postgres.NewSQL): %w", s.MaxOpenConnections, err))
	}
	if err != nil {
		return nil, err
	}
	return sqlConn{conn}, nil
}

func (d sqlDB) spare() (most int, early bool) {
	if n := d.db.Stats().MaxOpenConnections; n > 0 && n < 8 {
		return 1, true
	}
	return 2, true
}

type sqlConn struct{ conn *sql.Conn }

func (c sqlConn) exec(ctx context.Context, s statement) error { return execute(ctx, c.conn, s) }

// close ends the connection instead of giving it back to the pool: a statement of it may not have been answered.
func (c sqlConn) close() error {
	done := make(chan error, 1)
	go func() {
		_ = c.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		done <- ignoreClosed(c.conn.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(cleanupTimeout):
		return nil
	}
}

// ignoreClosed drops what Close says of a connection that is closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

func (d sqlDB) listen(context.Context, string, func(), func(driver.Hint)) error {
	return driver.Fail(driver.ErrUnsupported, errors.New("database/sql cannot LISTEN"))
}
