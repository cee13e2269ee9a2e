package mysql

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// most bounds the connections of a side pool, whatever the pool allows.
const most = 8

// newSidePool makes the side pool of an engine. It takes up to a quarter of the application's pool.
func newSidePool(e *engine) *connpool.Pool[upkeep] {
	return connpool.New(connpool.Config[upkeep]{
		Source: e.db,
		Most: func() int {
			pool := e.db.Stats().MaxOpenConnections
			if pool == 0 {
				return most
			}
			return min(max(pool/4, 1), most)
		},
		Open: func(ctx context.Context, limit time.Duration) (upkeep, error) {
			conn, err := e.reserve(ctx, limit, connpool.Beside)
			if err != nil {
				return upkeep{}, err
			}
			// innodb_lock_wait_timeout counts in seconds, so 1 is the least.
			if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
				e.discard(conn)
				return upkeep{}, err
			}
			return e.upkeepOn(conn), nil
		},
		Ping:  func(ctx context.Context, u upkeep) error { return u.conn.PingContext(ctx) },
		Close: func(u upkeep) { e.discard(u.conn) },
	})
}

func (e *engine) Attend(_ string, ttl time.Duration) (leave func()) { return e.side.Attend(ttl) }

// Lending returns a context that never ends: the Close of database/sql waits for no reserved
// connection.
func (e *engine) Lending() context.Context { return context.Background() }

func (e *engine) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return mysqlserver.Interpret(e.side.Do(ctx, func(ctx context.Context, u upkeep) error { return do(ctx, u) }))
}

// exhausted explains the error of a pool whose connections are all in use.
func (e *engine) exhausted(ctx context.Context, err error) error {
	if p := e.Connections(); ctx.Err() != nil && !p.Left() {
		return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
			"dblock needs a connection of its own, and %s: raise SetMaxOpenConns (see mysql.New): %w", p.Full(), err))
	}
	return err
}
