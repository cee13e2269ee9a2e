package mysql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
)

// onVitess is a test's database on Vitess.
func onVitess(t *testing.T) server {
	db := dbtest.Migrated(t, dbtest.KindVitess)
	return server{db, db.SQL(t)}
}

// ownVitess is the keyspace of a Vitess of the test's own.
func ownVitess(t *testing.T, settings ...string) server {
	own := dbtest.Own(t, dbtest.KindVitess, settings...)
	db := dbtest.Database{Kind: own.Kind, Engine: migrate.MySQL, DSN: own.DSN}
	return server{db, db.SQL(t)}
}

// vtgate answers information_schema by its own names of databases, and DO RELEASE_LOCK by nothing.
func TestMigrationsAreFoundOnVitess(t *testing.T) {
	s := onVitess(t)
	for range 2 {
		require.NoError(t, migrate.Up(t.Context(), s.SQL(t), migrate.MySQL, migrate.Locks, migrate.Fences))
	}
	require.NoError(t, migrate.Down(t.Context(), s.pool, migrate.MySQL, migrate.Fences))
	require.ErrorIs(t, migrate.Down(t.Context(), s.pool, migrate.MySQL), driver.ErrConfig)
	require.NoError(t, inside.Of(mysql.New(s.pool)).OpenSession(t.Context(), driver.Session{ID: id(), TTL: ttl}))
}

func TestNamedLocksAreRefusedOnVitess(t *testing.T) {
	c, err := mysql.Named(onVitess(t).pool)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	require.ErrorIs(t, require.ErrOf(c.Lock(t.Context(), "n")), driver.ErrConfig)
}

// vtgate keeps a level that was set for the next transaction.
func TestVitessKeepsTheLevelOfTheApplicationsConnections(t *testing.T) {
	s := onVitess(t)
	s.pool.SetMaxOpenConns(1)
	level := func() (is string) {
		require.NoError(t, s.pool.QueryRowContext(t.Context(), "SELECT @@transaction_isolation").Scan(&is))
		return is
	}
	before := level()
	_, err := inside.Of(mysql.New(s.pool)).Expire(t.Context(), id())
	require.NoError(t, err)
	require.Equal(t, level(), before)
}

func TestAKeyspaceOfSeveralShardsIsRefused(t *testing.T) {
	s := ownVitess(t, "--proto-topo", `keyspaces:{name:"app" shards:{name:"-80" db_name_override:"test"} `+
		`shards:{name:"80-" db_name_override:"test"}} cells:"test"`)
	require.ErrorIs(t, inside.Of(mysql.New(s.pool)).OpenSession(t.Context(), driver.Session{ID: id(), TTL: ttl}),
		driver.ErrConfig)
}

// A tablet ends a transaction after its time limit, with the locks of its rows.
func TestATransactionThatVitessHasEndedCannotGoOn(t *testing.T) {
	s := ownVitess(t, "--queryserver-config-transaction-timeout", "2s")
	s.Migrate(t)
	c, other := s.quiet(t), s.quiet(t)
	s.exec(t, "CREATE TABLE app (n INT PRIMARY KEY)")
	held, err := c.Lock(t.Context(), "held")
	require.NoError(t, err)
	for what, step := range map[string]func(tx *sql.Tx) error{
		"COMMIT": func(tx *sql.Tx) error { return tx.Commit() },
		"LockTx": func(tx *sql.Tx) error { return c.LockTx(t.Context(), tx, "more") },
		"Guard":  func(tx *sql.Tx) error { return c.Guard(t.Context(), tx, held) },
	} {
		tx, err := s.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, c.LockTx(t.Context(), tx, "n"))
		require.NoError(t, require.ErrOf(tx.Exec("INSERT INTO app VALUES (1)")))
		l, err := other.Lock(t.Context(), "n")
		require.NoError(t, err, "the lock of a transaction that was ended")
		err = step(tx)
		require.Error(t, err, what)
		if what != "COMMIT" {
			require.ErrorIs(t, err, driver.ErrRetry, what)
			require.NoError(t, tx.Rollback())
		}
		require.Equal(t, s.number(t, "SELECT COUNT(*) FROM app"), 0, "rows written without a lock")
		require.NoError(t, l.Unlock(t.Context()))
	}
}
