package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/crew"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func newCrew(e *engine) *crew.Crew[upkeep] {
	return crew.New(crew.Config[upkeep]{
		Pool: e.db.source(),
		Most: func() int { most, _ := e.db.spare(); return most },
		Open: func(ctx context.Context, _ time.Duration) (upkeep, error) {
			conn, err := e.db.reserve(ctx, e.appName())
			return upkeep{conn}, pgserver.Interpret(err)
		},
		Ping:  func(ctx context.Context, u upkeep) error { return u.conn.exec(ctx, statement{sql: "SELECT 1"}) },
		Close: func(u upkeep) { _ = u.conn.close() },
	})
}

func (e *engine) Attend(app string, ttl time.Duration) (leave func()) {
	if app != "" {
		e.app.Store(app)
	}
	return e.crew.Attend(ttl)
}

// appName is the application that the engine's connections are of; "" before a client attends.
func (e *engine) appName() string {
	app, _ := e.app.Load().(string)
	return app
}

func (e *engine) Beside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return e.crew.Do(ctx, func(ctx context.Context, u upkeep) error { return do(ctx, u) })
}
