package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// tracer counts what it is told.
type tracer struct{ told atomic.Int64 }

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.told.Add(1)
	return ctx
}
func (c *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { c.told.Add(1) }
func (c *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.told.Add(1)
	return ctx
}
func (c *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.told.Add(1) }
func (c *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     { c.told.Add(1) }
func (c *tracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	c.told.Add(1)
	return ctx
}
func (c *tracer) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) { c.told.Add(1) }

// A tracer may block: heartbeats and the listener would wait for it.
func TestConnectionsOfTheLibrarysOwnHaveNoTracer(t *testing.T) {
	config, err := pgxpool.ParseConfig(dbtest.Postgres(t).DSN)
	require.NoError(t, err)
	told := &tracer{}
	config.ConnConfig.Tracer = told
	config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { told.told.Add(1) }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	engine := New(pool)
	require.NoError(t, engine.OpenSession(t.Context(), driver.Session{ID: "s", Host: "h", App: "a", TTL: time.Minute}))
	before := told.told.Load()
	up, err := engine.Upkeep(t.Context(), "s")
	require.NoError(t, err)
	defer up.Close()
	if alive, err := up.Heartbeat(t.Context(), "s", time.Minute); !alive || err != nil {
		t.Error(alive, err)
	}
	if n := told.told.Load() - before; before == 0 || n != 0 {
		t.Errorf("it was told %d times of a heartbeat, and %d times before", n, before)
	}
}
