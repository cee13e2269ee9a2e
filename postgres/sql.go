package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/driver"
)

// sqlDB is a database over database/sql.
type sqlDB struct{ db *sql.DB }

func (d sqlDB) validate() error {
	if d.db == nil {
		return driver.Fail(driver.ErrConfig, errNilPool)
	}
	if n := d.db.Stats().MaxOpenConnections; n == 1 {
		return driver.Fail(driver.ErrConfig, errors.New("the pool allows 1 connection; heartbeats need one of their own: SetMaxOpenConns(2) or more"))
	}
	return nil
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
	return tx.Commit()
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
	if err != nil {
		return nil, err
	}
	return sqlConn{conn}, nil
}

type sqlConn struct{ conn *sql.Conn }

func (c sqlConn) exec(ctx context.Context, s statement) error { return execute(ctx, c.conn, s) }
func (c sqlConn) close() error                                { return c.conn.Close() }

func (d sqlDB) listen(context.Context, string, func(), func(driver.Hint)) error {
	return driver.Fail(driver.ErrUnsupported, errors.New("database/sql cannot LISTEN"))
}
