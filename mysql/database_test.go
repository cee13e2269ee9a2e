package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/reaper"
)

func TestTheTablesMayBeInADatabaseThatIsNotTheDefault(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			var places [2]string
			for i := range places {
				require.NoError(t, dbtest.Empty(t, kind).SQL(t).QueryRowContext(t.Context(),
					"SELECT DATABASE()").Scan(&places[i]))
			}
			pool := db.SQL(t)
			for _, place := range places {
				for _, emptied := range [][]string{nil, {"schema"}, {"schema", "migrations"}, nil} {
					for _, table := range emptied {
						require.NoError(t, require.ErrOf(pool.ExecContext(t.Context(),
							"DELETE FROM `"+place+"`.dblock_"+table)))
					}
					require.NoError(t, migrate.Up(t.Context(), pool, migrate.MySQL, migrate.Locks.In(place)))
				}
			}
			t.Run("all", func(t *testing.T) {
				app := db.SQL(t)
				suite.Elsewhere(t, func(place string) dblock.Engine[*sql.Tx] {
					return mysql.New(app, mysql.Database(place))
				},
					func(ctx context.Context) (*sql.Tx, func() error, error) {
						tx, err := app.BeginTx(ctx, nil)
						return tx, func() error { return tx.Commit() }, err
					}, places)
			})
			require.NoError(t, migrate.Down(t.Context(), pool, migrate.MySQL, migrate.Locks.In(places[0])))
			client, err := dblock.New(mysql.New(pool, mysql.Database(places[0])))
			require.NoError(t, err)
			defer client.Close(context.Background())
			if _, err := client.TryLock(t.Context(), "n"); !errors.Is(err, dblock.ErrSchema) ||
				!strings.Contains(err.Error(), places[0]) {
				t.Errorf("%v", err)
			}
			all, err := migrate.Status(t.Context(), pool, migrate.MySQL, migrate.Locks.In(places[1]))
			if err != nil || len(all) == 0 || !all[0].Applied {
				t.Errorf("the other database: %+v, %v", all, err)
			}
			missing, err := dblock.New(mysql.New(pool, mysql.Database("no_such_database")))
			require.NoError(t, err)
			defer missing.Close(context.Background())
			if _, err := missing.TryLock(t.Context(), "n"); !errors.Is(err, dblock.ErrSchema) ||
				!strings.Contains(err.Error(), "no_such_database") {
				t.Errorf("a database that is missing: %v", err)
			}
			refused := mysql.New(pool, mysql.Database("a`b"))
			assert.ErrorIs(t, assert.ErrOf(reaper.Sweep(t.Context(), refused)), dblock.ErrConfig, "a sweep")
			assert.ErrorIs(t, assert.ErrOf(dblock.New(refused)), dblock.ErrConfig)
		})
	}
}

// Broken by a client that takes a database of the same name for its own.
func TestATransactionOfAnotherServerIsRefused(t *testing.T) {
	db, there := dbtest.Warm(t, dbtest.KindMySQL), dbtest.Empty(t, dbtest.KindMariaDB)
	var name string
	require.NoError(t, db.SQL(t).QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
	there.Exec(t, "CREATE DATABASE "+name)
	defer there.Exec(t, "DROP DATABASE "+name)
	config, err := gomysql.ParseDSN(there.DSN)
	require.NoError(t, err)
	config.DBName = name
	other, err := sql.Open("mysql", config.FormatDSN())
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, migrate.Up(t.Context(), other, migrate.MySQL))
	client, err := dblock.New(mysql.New(db.SQL(t)))
	require.NoError(t, err)
	defer client.Close(context.Background())
	held, err := client.Lock(t.Context(), "held")
	require.NoError(t, err)
	for what, call := range map[string]func(tx *sql.Tx) error{
		"LockTx":   func(tx *sql.Tx) error { return client.LockTx(t.Context(), tx, "n") },
		"Guard":    func(tx *sql.Tx) error { return client.Guard(t.Context(), tx, held) },
		"UnlockTx": func(tx *sql.Tx) error { return client.UnlockTx(t.Context(), tx, held) },
	} {
		tx, err := other.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		assert.ErrorIs(t, call(tx), dblock.ErrConfig, what)
		require.NoError(t, tx.Rollback())
	}
	assert.NoError(t, held.Context().Err())
}
