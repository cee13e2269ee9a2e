package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/crew"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func newCrew(e *engine) *crew.Crew[upkeep] {
	return crew.New(crew.Config[upkeep]{
		Most: func() int { most, _ := e.db.spare(); return most },
		Open: func(ctx context.Context, _ time.Duration) (upkeep, error) {
			conn, err := e.db.reserve(ctx)
			return upkeep{conn}, pgserver.Interpret(err)
		},
		Ping:  func(ctx context.Context, u upkeep) error { return u.conn.exec(ctx, statement{sql: "SELECT 1"}) },
		Close: func(u upkeep) { _ = u.conn.close() },
	})
}

func (e *engine) Attend(ttl time.Duration) (leave func()) { return e.crew.Attend(ttl) }

func (e *engine) Beside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return e.crew.Do(ctx, func(ctx context.Context, u upkeep) error { return do(ctx, u) })
}
