package postgres

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A waiter sleeps until the end of a transaction that has had the row, and has returned to a
// savepoint. The transaction then waits for the row behind the sleeper. Broken by a LockTx that
// takes this for a deadlock.
func TestACycleWithASleeperIsNoDeadlock(t *testing.T) {
	db := dbtest.Postgres(t)
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	var end func() // ends the sleeper's turn, and then the other transaction
	config.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == "40P01" {
			end()
		}
		return true
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	begin := func(texts ...string) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		for _, text := range texts {
			_, err := tx.Exec(t.Context(), text)
			require.NoError(t, err)
		}
		return tx
	}
	_, err = pool.Exec(t.Context(), "SELECT dblock_make('n')")
	require.NoError(t, err)
	tx := begin("SET LOCAL deadlock_timeout = '20ms'", "SAVEPOINT s", "SELECT dblock_wait('n')")
	sleeper := begin("SET LOCAL deadlock_timeout = '1h'")
	pid := sleeper.Conn().PgConn().PID()
	var sleeping sync.WaitGroup
	sleeping.Go(func() { _, _ = sleeper.Exec(context.Background(), "SELECT dblock_wait('n')") })
	dbtest.Eventually(t, "the sleeper waits", func() (waits bool) {
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT coalesce(wait_event_type, '') = 'Lock' FROM pg_stat_activity WHERE pid = $1", pid).Scan(&waits))
		return waits
	})
	_, err = tx.Exec(t.Context(), "ROLLBACK TO s")
	require.NoError(t, err)
	other := begin("SELECT FROM dblock_locks WHERE name = 'n' FOR UPDATE NOWAIT")
	end = sync.OnceFunc(func() {
		_, _ = pool.Exec(context.Background(), "SELECT pg_cancel_backend($1)", pid)
		sleeping.Wait()
		_ = other.Rollback(context.Background())
	})
	defer end()
	_, locked, err := inside.Of(New(pool)).In(tx).Lock(t.Context(), "n", nil, true, nil)
	if err != nil || !locked {
		t.Errorf("locked: %v, %v", locked, err)
	}
}
