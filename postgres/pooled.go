package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// WithinPool makes a client of New take its own connections out of the pool instead of opening them
// beside it: one for heartbeats and listening, and one for work beside the application's
// transactions (up to two if the pool allows 8). The pool must allow 3; fewer is ErrConfig.
//
// Close the client before the pool: pgxpool's Close waits for all connections. A pool that is
// closed first gets the client's connections back within about a second. The client logs that, its
// calls return ErrConfig, and its locks expire with its session. NewSQL always takes its
// connections from the pool, and ignores WithinPool.
func WithinPool() Option {
	return Option{func(e *engine) {
		if d, beside := e.db.(pgxDB); beside {
			e.db = pooledDB{d}
		}
	}}
}

// pooledDB is a database over a pgx pool, without connections beside it.
type pooledDB struct{ pgxDB }

func (d pooledDB) validate() error {
	if err := d.pgxDB.validate(); err != nil {
		return err
	}
	return connpool.Enough(int(d.pool.Stat().MaxConns()), "pool_max_conns=3")
}

// spareOf returns the number of connections, besides that of the heartbeats, kept of a pool of a
// given size.
func spareOf(most int) int {
	if most > 0 && most < 8 {
		return 1
	}
	return 2
}

func (d pooledDB) reserve(ctx context.Context, app string) (connection, error) {
	lent, err := d.pool.Acquire(ctx)
	if p := d.connections(); err != nil && ctx.Err() != nil && !p.Left() {
		return nil, driver.Fail(driver.ErrUnavailable, fmt.Errorf(
			"dblock needs a connection of its own, and %s: raise pool_max_conns (see postgres.WithinPool): %w",
			p.Full(), err))
	}
	if err != nil && ctx.Err() != nil {
		return nil, driver.Fail(driver.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	conn := pooledConn{pgxConn{lent.Conn()}, d, lent}
	if err := conn.pgxConn.exec(ctx, named(app)); err != nil {
		_ = conn.close()
		return nil, err
	}
	return conn, nil
}

// named gives a connection of the pool the library's name and the encoding UTF8.
func named(app string) statement {
	return statement{
		sql: "SELECT set_config('client_encoding', 'UTF8', false), " +
			"set_config('application_name', convert_from(decode($1, 'hex'), 'UTF8'), false)",
		args: []any{transaction.Hex(pgserver.ConnectionName(app))},
	}
}

func (d pooledDB) source() any { return d.pool }

func (d pooledDB) spare() (most int, early bool) { return spareOf(int(d.pool.Stat().MaxConns())), true }

// pooledConn is a connection of the pool that does not return to it: close ends it.
type pooledConn struct {
	pgxConn
	of   pooledDB
	lent *pgxpool.Conn
}

// exec fails if the pool was closed.
func (c pooledConn) exec(ctx context.Context, s statement) error {
	if err := c.of.orphaned(); err != nil {
		return err
	}
	return c.pgxConn.exec(ctx, s)
}

// closedTimeout is enough for a pool to report that it is closed. A pool without a free connection
// would not answer.
const closedTimeout = 10 * time.Millisecond

// orphaned is as of database. A closed pool has no idle connection.
func (d pooledDB) orphaned() error {
	if d.pool.Stat().IdleConns() > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closedTimeout)
	defer cancel()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return driver.PoolClosed(err)
	}
	conn.Release()
	return nil
}

func (c pooledConn) close() error {
	defer c.lent.Release()
	return c.pgxConn.close()
}
