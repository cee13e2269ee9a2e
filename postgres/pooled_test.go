package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
	// pgxpool ends them beside, and the server its side
	dbtest.Eventually(t, "no connection to be lost", func() bool { return pool.Stat().AcquiredConns() == 0 })
	dbtest.Eventually(t, "no connection to bear our name", func() bool {
		var named int
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE "+
				"'dblock%'").Scan(&named))
		return named == 0
	})
}

// Broken by connections that a pool has lent and that nobody gives back: pgxpool's Close waits for
// them, and the client's comes after it. The next heartbeat is far away.
func TestAPoolThatIsClosedBeforeTheClientWithinItGetsItsConnectionsBack(t *testing.T) {
	pool := poolOf(t, dbtest.Postgres(t), 6)
	var log bytes.Buffer
	client, err := dblock.New(New(pool, WithinPool()), dblock.WithTTL(time.Hour),
		dblock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	l, err := client.Lock(t.Context(), "n")
	require.NoError(t, err)
	dbtest.Eventually(t, "the client to have its connections", func() bool { return pool.Stat().AcquiredConns() >= 2 })
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

// Broken by a client that takes the last connections of a pool, so that every query of the
// application hangs.
func TestASecondClientThatWouldTakeTheLastConnectionsIsRefused(t *testing.T) {
	pool := limited(t, dbtest.Postgres(t).SQL(t), 4)
	open := func() *dblock.Client[*sql.Tx] {
		c, err := dblock.New(NewSQL(pool), dblock.WithTTL(dbtest.Scale(4*time.Second)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	first, second := open(), open()
	held, err := first.Lock(t.Context(), "n")
	require.NoError(t, err)
	dbtest.Eventually(t, "the first client to keep its connections", func() bool { return pool.Stats().InUse >= 2 })
	require.NoError(t, held.Detach(t.Context(), time.Minute), "Detach needs no more connections")
	held, err = first.Resume(t.Context(), "n", held.Token())
	require.NoError(t, err)
	_, err = second.Lock(t.Context(), "m")
	says := "the pool allows 4 connections, and the 2 clients"
	if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(), says) {
		t.Errorf("the second client: %v", err)
	}
	var one int
	assert.NoError(t, pool.QueryRowContext(t.Context(), "SELECT 1").Scan(&one), "the application")
	assert.NoError(t, held.Unlock(t.Context()))
	assert.NoError(t, first.Close(t.Context()))
	assert.NoError(t, assert.ErrOf(second.Lock(t.Context(), "m")), "once the first is closed")
}
