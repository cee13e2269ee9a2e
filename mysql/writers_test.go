package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
)

// Broken by a promise that nobody asks for.
func TestWhatReliesOnARowLockIsRefusedWhereSeveralNodesWrite(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, several := range []string{"", "one of several"} {
			for _, options := range [][]mysql.Option{nil, {mysql.SingleWriter()}} {
				a := applicationOn(t, s.open(t, nil), options...)
				e := a.engine
				mysql.OnSeveralWriters(e.Backend, several)
				held, name := a.take(t, id()), id() // leases work with any number of writers
				require.NoError(t, e.In(nil).MakeGuard(t.Context(), held, a.beside))
				if err := mysql.Wakes(e.Backend); (several == "" || options != nil) != (err == nil) || err != nil &&
					!errors.Is(err, driver.ErrUnsupported) {
					t.Errorf("%q, %d options: wakes %v", several, len(options), err)
				}
				tx, _ := a.begin(t, sql.LevelRepeatableRead)
				_, lockErr := a.lock(t.Context(), tx, name, true)
				_, tryErr := a.lock(t.Context(), tx, name, false)
				guardErr := e.In(tx).Guard(t.Context(), held, a.beside)
				for _, err := range []error{lockErr, tryErr, guardErr} {
					if several == "" || options != nil {
						require.NoError(t, err)
						continue
					}
					is(t, err, driver.ErrConfig)
					if !strings.Contains(err.Error(), "mysql.SingleWriter()") {
						t.Errorf("%v: does not say what to do", err)
					}
				}
				require.NoError(t, e.In(tx).Release(t.Context(), held, protocol.Detachment{}, a.beside))
				require.NoError(t, tx.Commit())
			}
		}
	})
}

// DBLOCK_TEST_WRITERS="DSN DSN DSN": the nodes of a Galera cluster, or of a group with several
// primaries, that all write. Leases over all of them: scripts/soak clusters.
func TestOnSeveralWriters(t *testing.T) {
	nodes := strings.Fields(os.Getenv("DBLOCK_TEST_WRITERS"))
	if len(nodes) == 0 {
		t.Skip("DBLOCK_TEST_WRITERS names no cluster: see docs/testing.md")
	}
	database := "w" + strings.ToLower(id())
	var pools []*sql.DB
	for i, dsn := range nodes {
		config, err := sqldriver.ParseDSN(dsn)
		require.NoError(t, err)
		if i == 0 {
			first, err := sql.Open("mysql", config.FormatDSN())
			require.NoError(t, err)
			t.Cleanup(func() { _ = first.Close() })
			_, err = first.Exec("CREATE DATABASE " + database)
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = first.Exec("DROP DATABASE " + database) })
		}
		config.DBName = database
		connector, err := sqldriver.NewConnector(config)
		require.NoError(t, err)
		pool := sql.OpenDB(connector)
		t.Cleanup(func() { _ = pool.Close() })
		if i == 0 {
			require.NoError(t, migrate.Up(t.Context(), pool, migrate.MySQL))
		}
		dbtest.Eventually(t, "the tables on every node", func() bool {
			var version int
			return pool.QueryRow("SELECT version FROM dblock_schema").Scan(&version) == nil &&
				version == driver.SchemaVersion
		})
		pools = append(pools, pool)
	}
	client := func(pool *sql.DB, options ...mysql.Option) *dblock.Client[*sql.Tx] {
		c, err := dblock.New(mysql.New(pool, options...))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	for _, pool := range pools {
		tx, err := pool.Begin()
		require.NoError(t, err)
		is(t, client(pool).LockTx(t.Context(), tx, "doc"), dblock.ErrConfig)
		require.NoError(t, tx.Rollback())
	}
	one := client(pools[0], mysql.SingleWriter())
	first, err := pools[0].Begin()
	require.NoError(t, err)
	require.NoError(t, one.LockTx(t.Context(), first, "doc"))
	second, err := pools[0].Begin()
	require.NoError(t, err)
	is(t, one.TryLockTx(t.Context(), second, "doc"), dblock.ErrNotAcquired)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	if err := one.LockTx(ctx, second, "doc"); !errors.Is(err, dblock.ErrNotAcquired) &&
		!errors.Is(err, driver.ErrRetry) {
		t.Errorf("%v: want a wait that is over, or, as Galera has it, the transaction", err)
	}
	cancel()
	require.NoError(t, second.Rollback())
	require.NoError(t, first.Commit())
	second, err = pools[0].Begin()
	require.NoError(t, err)
	require.NoError(t, one.LockTx(t.Context(), second, "doc"))
	require.NoError(t, second.Commit())
}
