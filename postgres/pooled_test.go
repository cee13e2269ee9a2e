package postgres

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// poolOf is a pool of so many connections.
func poolOf(t *testing.T, db dbtest.Database, most int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	config.MaxConns = most
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestAClientWithinItsPoolOpensNothingBesideIt(t *testing.T) {
	db := dbtest.Postgres(t)
	pool := poolOf(t, db, 4)
	client, err := dblock.New(New(pool, WithinPool()))
	require.NoError(t, err)
	other := newClient(t, New(db.Pool(t)))
	handOver(t, db, other, client, "n", func() { listening(t, client.Stats) })
	l, err := client.Lock(t.Context(), "m")
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	assert.NoError(t,
		errors.Join(client.Guard(t.Context(), tx, l), client.UnlockTx(t.Context(), tx, l), tx.Commit(t.Context())))
	s := pool.Stat()
	if s.AcquiredConns() != 2 || s.TotalConns() > 4 {
		t.Errorf("%d of %d connections are in use: want that of the heartbeats and one beside", s.AcquiredConns(),
			s.TotalConns())
	}
	assert.NoError(t, errors.Join(client.Close(t.Context()), other.Close(t.Context())))
	// pgxpool ends them beside
	for deadline := time.Now().Add(patience()); pool.Stat().AcquiredConns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are lost", pool.Stat().AcquiredConns())
		}
	}
	for deadline := time.Now().Add(patience()); ; time.Sleep(time.Millisecond) { // and the server its side
		var named int
		err := pool.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE "+
				"'dblock%'").Scan(&named)
		if err == nil && named == 0 {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d connections bear our name, %v", named, err)
		}
	}
}

// Broken by connections that a pool has lent and that nobody gives back: pgxpool's Close waits for
// them, and the client's comes after it. The next heartbeat is far away.
func TestAPoolThatIsClosedBeforeItsClientGetsItsConnectionsBack(t *testing.T) {
	t.Run("within the pool", func(t *testing.T) {
		pool := poolOf(t, dbtest.Postgres(t), 6)
		closePoolFirst(t, pool, New(pool, WithinPool()))
	})
	t.Run("behind OpenDBFromPool", func(t *testing.T) {
		pool := poolOf(t, dbtest.Postgres(t), 6)
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		closePoolFirst(t, pool, NewSQL(db))
	})
}

func closePoolFirst[TX any](t *testing.T, pool *pgxpool.Pool, engine dblock.Engine[TX]) {
	var log bytes.Buffer
	client, err := dblock.New(engine, dblock.WithTTL(time.Hour),
		dblock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	l, err := client.Lock(t.Context(), "n")
	require.NoError(t, err)
	for deadline := time.Now().Add(patience()); pool.Stat().AcquiredConns() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the client has not reserved its connections")
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience()):
		t.Fatalf("%d connections are in use still", pool.Stat().AcquiredConns())
	}
	assert.ErrorIs(t, client.Close(context.Background()), dblock.ErrConfig, "close")
	assert.Error(t, l.Context().Err(), "the lock is held still")
	if says := "the application has closed the pool: close the client first"; !strings.Contains(log.String(), says) {
		t.Errorf("the log has %q: want %q", log.String(), says)
	}
}

func TestAPoolWithinWhichThereIsNoRoomIsRefused(t *testing.T) {
	db := dbtest.Postgres(t)
	assert.ErrorIs(t, assert.ErrOf(dblock.New(New(poolOf(t, db, 2), WithinPool()))), dblock.ErrConfig, "a pool of 2")
	pool := poolOf(t, db, 3)
	require.NoError(t, require.ErrOf(newClient(t, New(pool, WithinPool())).TryLock(t.Context(), "n")))
	assert.ErrorIs(t, assert.ErrOf(newClient(t, New(pool, WithinPool())).TryLock(t.Context(), "m")), dblock.ErrConfig,
		"a second client on a pool of 3")
}
