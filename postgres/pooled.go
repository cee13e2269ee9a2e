package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// WithinPool has a client of New take the connections of its own out of its pool, where it
// otherwise opens them beside it: one for heartbeats and to listen, and one for work beside the
// application's transactions (up to two where the pool allows 8). The pool must allow 3; fewer is
// ErrConfig. Close the client before the pool: pgxpool's Close waits for all connections, and so
// for the client's next heartbeat, which finds the pool closed and gives them back. The locks then
// end with the session. NewSQL always does so, and ignores it.
func WithinPool() Option {
	return func(e *engine) {
		if d, beside := e.db.(pgxDB); beside {
			e.db = pooledDB{d}
		}
	}
}

// pooledDB is a database over a pgx pool that nothing is opened beside.
type pooledDB struct{ pgxDB }

func (d pooledDB) validate() error {
	if err := d.pgxDB.validate(); err != nil {
		return err
	}
	return connpool.Enough(int(d.pool.Stat().MaxConns()), "pool_max_conns=3")
}

// spareOf is how many connections beside that of the heartbeats are kept of a pool of a size.
func spareOf(most int) int {
	if most > 0 && most < 8 {
		return 1
	}
	return 2
}

func (d pooledDB) reserve(ctx context.Context, app string) (connection, error) {
	lent, err := d.pool.Acquire(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, driver.Fail(driver.ErrUnavailable,
			fmt.Errorf("the pool gave no connection, and dblock needs one of its own: see postgres.WithinPool: %w",
				err))
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

// named gives a connection of the pool the library's name, and has it read what was written.
func named(app string) statement {
	return statement{
		sql:  "SELECT set_config('client_encoding', 'UTF8', false), set_config('application_name', $1, false)",
		args: []any{pgserver.ConnectionName(app)},
	}
}

func (d pooledDB) source() any { return d.pool }

func (d pooledDB) room(_ context.Context, side *connpool.Pool[upkeep]) error {
	return side.Leaves(int(d.pool.Stat().MaxConns()))
}

func (d pooledDB) spare() (most int, early bool) { return spareOf(int(d.pool.Stat().MaxConns())), true }

// pooledConn is a connection of the pool, which does not get it back: close ends it.
type pooledConn struct {
	pgxConn
	of   pooledDB
	lent *pgxpool.Conn
}

// exec fails where the pool was closed. Such a pool has no idle connection.
func (c pooledConn) exec(ctx context.Context, s statement) error {
	if c.of.pool.Stat().IdleConns() == 0 {
		err := closed(func(ctx context.Context) (giveBack func(), err error) {
			conn, err := c.of.pool.Acquire(ctx)
			return conn.Release, err
		})
		if err != nil {
			return err
		}
	}
	return c.pgxConn.exec(ctx, s)
}

// closedTimeout is time enough for a pool to say that it is closed. One that has no free connection
// would say nothing.
const closedTimeout = 10 * time.Millisecond

// closed is ErrConfig where a pool is closed, whose Close waits for the connections that it has
// lent; else nil.
func closed(acquire func(ctx context.Context) (giveBack func(), err error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), closedTimeout)
	defer cancel()
	giveBack, err := acquire(ctx)
	if err != nil {
		return driver.PoolClosed(err)
	}
	giveBack()
	return nil
}

func (c pooledConn) close() error {
	defer c.lent.Release()
	return c.pgxConn.close()
}
