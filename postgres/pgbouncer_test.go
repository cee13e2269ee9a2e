package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// Tables need no session of the database's. LISTEN does, so that waiters poll.
func TestTableLocksWorkThroughAPoolerOfTransactions(t *testing.T) {
	db := dbtest.Postgres(t)
	through := db.PgBouncer(t, dbtest.PoolTransactions)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			open := func() *dblock.Client[pgx.Tx] { return newClient(t, New(poolIn(t, through, mode))) }
			handOver(t, db, open(), open(), mode.String(), func() {})
		})
	}
}

// Nothing that takes several statements would hold there. What doctor says is what the client says.
func TestAPoolerOfStatementsIsRefused(t *testing.T) {
	through := dbtest.Postgres(t).PgBouncer(t, dbtest.PoolStatements)
	for name, err := range map[string]error{
		"pgx": assert.ErrOf(newClient(t, New(through.Pool(t))).TryLock(t.Context(), "n")),
		"sql": assert.ErrOf(newClient(t, NewSQL(through.SQL(t))).TryLock(t.Context(), "n")),
	} {
		if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
			"let it pool sessions or transactions") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Broken by a listener that connects as the pool does.
func TestAClientBehindAPoolerOfTransactionsListensPastIt(t *testing.T) {
	db, another := dbtest.Postgres(t), dbtest.Postgres(t)
	through := db.PgBouncer(t, dbtest.PoolTransactions)
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	overSQL := through.SQL(t)
	overSQL.SetMaxOpenConns(3)
	for name, client := range map[string]*dblock.Client[pgx.Tx]{
		"a DSN":           newClient(t, New(through.Pool(t), Listen(db.DSN))),
		"a configuration": newClient(t, New(through.Pool(t), Listen(config))),
		"a pool":          newClient(t, New(through.Pool(t), Listen(db.Pool(t)))),
	} {
		t.Run(name, func(t *testing.T) {
			handOver(t, db, newClient(t, New(db.Pool(t))), client, name, func() { listening(t, client.Stats) })
		})
	}
	t.Run("over database/sql with a pool of 3", func(t *testing.T) {
		client := newClient(t, NewSQL(overSQL, Listen(db.DSN)))
		handOver(t, db, newClient(t, New(db.Pool(t))), client, "sql", func() { listening(t, client.Stats) })
	})
	t.Run("another database", func(t *testing.T) {
		told := make(chan error, 99)
		client := newClient(t, New(through.Pool(t), Listen(another.DSN)), dblock.WithObserver(observe.Observer{
			Listener: func(up bool, err error) { told <- err },
		}))
		handOver(t, db, newClient(t, New(db.Pool(t))), client, "other", func() {
			assert.ErrorIs(t, <-told, driver.ErrDeaf)
		})
	})
}

// A LISTEN would stay behind on the pooler's connection, and the application is lent that. Broken
// by LISTEN without a look at the process that serves the connection.
func TestNobodyListensOnAConnectionThatAPoolerLendsByTheTransaction(t *testing.T) {
	for name, settings := range map[string][]string{
		"the newest first": nil,
		"in turn":          {"server_round_robin = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Postgres(t)
			proxy := dbtest.NewProxy(t, db.Addr(t))
			through := db.Through(t, proxy).PgBouncer(t, dbtest.PoolTransactions, settings...)
			var open []*sql.Tx
			for pool := through.SQL(t); len(open) < 5; { // at once: the pooler makes as many connections
				tx, err := pool.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				open = append(open, tx)
			}
			for _, tx := range open {
				require.NoError(t, tx.Rollback())
			}
			var listened atomic.Bool
			proxy.Watch(func(request []byte) {
				if bytes.Contains(request, []byte("LISTEN")) {
					listened.Store(true)
				}
			})
			assert.ErrorIs(t, drivertest.Hear(t, inside.Of(New(through.Pool(t))).Backend, "s").Over(), errUnheard)
			if listened.Load() {
				t.Error("LISTEN was sent")
			}
		})
	}
}

func TestAClientListensThroughAPoolerOfSessions(t *testing.T) {
	through := dbtest.Postgres(t).PgBouncer(t, dbtest.PoolSessions)
	l := drivertest.Hear(t, inside.Of(New(through.Pool(t))).Backend, "s").Started()
	hears(t, l, through.SQL(t))
	_ = l.Stop()
}

// Broken by returning without UNLISTEN.
func TestAListenerThatHearsNothingListensNoMore(t *testing.T) {
	up, err := inside.Of(New(dbtest.Postgres(t).Pool(t))).Upkeep(t.Context(), "s")
	require.NoError(t, err)
	defer up.Close()
	elsewhere := inside.Of(New(dbtest.Postgres(t).Pool(t))).Backend.(*engine) // sends the first notification
	elsewhere.echo = 10 * time.Millisecond
	conn := up.(upkeep).conn
	assert.ErrorIs(t, (upkeep{conn, elsewhere}).Listen(t.Context(), "s", nil, nil), errUnheard)
	var channels int
	count := statement{sql: "SELECT count(*) FROM pg_listening_channels()"}.into(&channels, func() {})
	require.NoError(t, conn.exec(t.Context(), count))
	assert.Equal(t, channels, 0)
}

func TestAnAddressToListenAtThatCannotBeReadIsRefused(t *testing.T) {
	pool := dbtest.Postgres(t).Pool(t)
	for _, option := range []Option{Listen("host=h port=many"), Listen((*pgx.ConnConfig)(nil)),
		Listen((*pgxpool.Pool)(nil))} {
		assert.ErrorIs(t, assert.ErrOf(dblock.New(New(pool, option))), dblock.ErrConfig)
	}
}

func newClient[TX any](t *testing.T, engine dblock.Engine[TX], options ...dblock.Option) *dblock.Client[TX] {
	t.Helper()
	client, err := dblock.New(engine, append(options, dblock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close(context.Background())) })
	return client
}

// poolIn opens a pool that sends statements in a mode of pgx.
func poolIn(t *testing.T, db dbtest.Database, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// listening waits until a client listens.
func listening(t *testing.T, stats func() dblock.Stats) {
	t.Helper()
	dbtest.Eventually(t, "it to listen", func() bool { return stats().Listening })
}

// handOver has a lock go from one client to another that waits for it. queued is called before the
// first gives it back.
func handOver[A, B any](
	t *testing.T, db dbtest.Database, one *dblock.Client[A], two *dblock.Client[B], name string, queued func(),
) {
	t.Helper()
	held, err := one.Lock(t.Context(), name)
	require.NoError(t, err)
	assert.ErrorIs(t, assert.ErrOf(two.TryLock(t.Context(), name)), dblock.ErrNotAcquired)
	got := make(chan error, 1)
	go func() {
		l, err := two.Lock(t.Context(), name)
		if err == nil && l.Token() <= held.Token() {
			err = errors.New("the token did not rise")
		}
		if err == nil {
			err = l.Unlock(t.Context())
		}
		got <- err
	}()
	direct := db.Pool(t)
	dbtest.Eventually(t, "somebody to queue", func() bool {
		var places int
		require.NoError(t, direct.QueryRow(t.Context(), "SELECT count(*) FROM dblock_waiters WHERE name = $1",
			name).Scan(&places))
		return places == 1
	})
	queued()
	assert.NoError(t, held.Unlock(t.Context()))
	select {
	case err := <-got:
		assert.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("it was not handed over")
	}
}
