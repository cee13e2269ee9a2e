package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func newSidePool(e *engine) *connpool.Pool[upkeep] {
	return connpool.New(connpool.Config[upkeep]{
		Source: e.db.source(),
		Most:   func() int { most, _ := e.db.spare(); return most },
		Open: func(ctx context.Context, _ time.Duration) (upkeep, error) {
			conn, err := e.db.reserve(ctx, e.appName())
			if err != nil {
				return upkeep{}, pgserver.Interpret(err)
			}
			return e.keep(conn, connpool.Beside), nil
		},
		Ping:  func(ctx context.Context, u upkeep) error { return u.conn.exec(ctx, statement{sql: "SELECT 1"}) },
		Close: func(u upkeep) { _ = u.Close() },
		Closed: func() bool {
			if e.db.orphaned() == nil {
				return false
			}
			e.stopLending()
			return true
		},
	})
}

func (e *engine) Lending() context.Context { return e.lending }

func (e *engine) Attend(app string, ttl time.Duration) (leave func()) {
	if app != "" {
		e.app.Store(app)
	}
	return e.side.Attend(ttl)
}

// appName returns the application that the engine's connections belong to; "" before a client
// attends.
func (e *engine) appName() string {
	app, _ := e.app.Load().(string)
	return app
}

func (e *engine) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return e.side.Do(ctx, func(ctx context.Context, u upkeep) error { return do(ctx, u) })
}
