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
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A process that is stopped between two statements is, for the server, a connection that says
// nothing.
func TestATransactionThatFallsSilentIsEndedByTheServer(t *testing.T) {
	pool := dbtest.Postgres(t).SQL(t)
	require.NoError(t, require.ErrOf(pool.Exec("CREATE TABLE held (n int); INSERT INTO held VALUES (1)")))
	locked, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the client's TTL
	defer cancel()
	go func() {
		done <- sqlDB{db: pool}.transact(stopped{ctx},
			statement{sql: "SELECT n FROM held FOR UPDATE", row: func(scanner) error {
				close(locked)
				<-goOn
				return nil
			}},
			statement{sql: "UPDATE held SET n = 2"},
		)
	}()
	<-locked
	if _, err := pool.Exec("UPDATE held SET n = 3"); err != nil { // waits for the row, without limit
		t.Fatal(err)
	}
	close(goOn)
	assert.ErrorIs(t, pgserver.Interpret(<-done), driver.ErrUnavailable, "the transaction ended with")
	var n int
	if err := pool.QueryRow("SELECT n FROM held").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d %v", n, err)
	}
}

// Broken by a transaction of the general way that the server does not end: whoever wants the name
// would wait for the process.
func TestAProcessThatIsStoppedInATransitionKeepsNoName(t *testing.T) {
	db := dbtest.Postgres(t)
	for name, engine := range map[string]driver.Backend{"pgx": inside.Of(New(db.Pool(t))).Backend,
		"sql": inside.Of(NewSQL(db.SQL(t))).Backend} {
		t.Run(name, func(t *testing.T) {
			r := protocol.Request{Name: name, Session: "a", Attempt: "a", Patient: true}
			require.NoError(t, require.ErrOf(engine.Run(t.Context(), protocol.Take{Request: r})))
			locked, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the client's TTL
			defer cancel()
			go func() {
				_, err := engine.Run(stopped{ctx}, drivertest.Func{Name: name, Do: func(*protocol.Name) error {
					close(locked)
					<-goOn
					return nil
				}})
				done <- err
			}()
			<-locked
			// waits for the row, without limit
			require.NoError(t,
				require.ErrOf(db.SQL(t).Exec("UPDATE dblock_locks SET asked = 'why' WHERE name = $1", name)))
			close(goOn)
			assert.ErrorIs(t, <-done, driver.ErrUnavailable, "the transaction ended with")
		})
	}
}

// stopped is a context whose end the process does not see, since it is stopped.
type stopped struct{ context.Context }

func (stopped) Done() <-chan struct{} { return nil }
func (stopped) Err() error            { return nil }

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
	engine := inside.Of(New(pool))
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
