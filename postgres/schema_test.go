package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

func TestTheTablesMayBeInASchemaThatTheSearchPathDoesNotName(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	pool := db.SQL(t)
	places := [2]string{"locks", "Of-others"}
	for _, place := range places {
		for _, emptied := range [][]string{nil, {"schema"}, {"schema", "migrations"}, nil} {
			for _, table := range emptied {
				require.NoError(t, require.ErrOf(pool.ExecContext(t.Context(), `DELETE FROM "`+place+`".dblock_`+table)))
			}
			require.NoError(t, migrate.Up(t.Context(), pool, migrate.Postgres, migrate.Locks.In(place)))
		}
	}
	t.Run("pgx", func(t *testing.T) {
		app := db.Pool(t)
		suite.Elsewhere(t, func(place string) dblock.Engine[pgx.Tx] {
			return postgres.New(app, postgres.Schema(place))
		},
			func(ctx context.Context) (pgx.Tx, func() error, error) {
				tx, err := app.Begin(ctx)
				return tx, func() error { return tx.Commit(ctx) }, err
			}, places)
	})
	t.Run("database/sql", func(t *testing.T) {
		app := db.SQL(t)
		suite.Elsewhere(t, func(place string) dblock.Engine[*sql.Tx] {
			return postgres.NewSQL(app, postgres.Schema(place))
		},
			func(ctx context.Context) (*sql.Tx, func() error, error) {
				tx, err := app.BeginTx(ctx, nil)
				return tx, func() error { return tx.Commit() }, err
			}, places)
	})
	t.Run("the function that guards", func(t *testing.T) {
		client, err := dblock.New(postgres.NewSQL(pool, postgres.Schema(places[1])))
		require.NoError(t, err)
		defer client.Close(context.Background())
		l, err := client.Lock(t.Context(), "guarded")
		require.NoError(t, err)
		if _, err := pool.ExecContext(t.Context(), `SELECT "Of-others".dblock_guard($1, $2)`, "guarded",
			l.Token()); err != nil {
			t.Error(err)
		}
	})
	t.Run("down", func(t *testing.T) {
		require.NoError(t, migrate.Down(t.Context(), pool, migrate.Postgres, migrate.Locks.In(places[0])))
		client, err := dblock.New(postgres.NewSQL(pool, postgres.Schema(places[0])))
		require.NoError(t, err)
		defer client.Close(context.Background())
		if _, err := client.TryLock(t.Context(), "n"); !errors.Is(err, dblock.ErrSchema) ||
			!strings.Contains(err.Error(), `migrate.Up of migrate.Locks.In("locks")`) {
			t.Errorf("%v", err)
		}
		all, err := migrate.Status(t.Context(), pool, migrate.Postgres, migrate.Locks.In(places[1]))
		if err != nil || len(all) == 0 || !all[0].Applied {
			t.Errorf("the other schema: %+v, %v", all, err)
		}
	})
	if _, err := dblock.New(postgres.NewSQL(pool, postgres.Schema(`a"b`))); !errors.Is(err, dblock.ErrConfig) {
		t.Errorf("%v", err)
	}
}

// Broken by a function or a view that keeps the name of its schema as a text.
func TestTheTablesMoveWithTheirSchema(t *testing.T) {
	for _, in := range []string{"locks", "public"} {
		t.Run(in, func(t *testing.T) {
			db := dbtest.Empty(t, dbtest.KindPostgres)
			pool := db.SQL(t)
			if in == "public" {
				require.NoError(t, migrate.Up(t.Context(), pool, migrate.Postgres))
			} else {
				require.NoError(t, migrate.Up(t.Context(), pool, migrate.Postgres, migrate.Locks.In(in)))
			}
			db.Exec(t, `ALTER SCHEMA `+in+` RENAME TO "Moved"`)
			client := clientOf(t, postgres.NewSQL(pool, postgres.Schema("Moved")))
			require.NoError(t, client.CheckSchema(t.Context()))
			l, err := client.Lock(t.Context(), "a new name")
			require.NoError(t, err)
			db.Exec(t, fmt.Sprintf(`SELECT "Moved".dblock_guard('a new name', %d)`, l.Token()),
				`SELECT name FROM "Moved".dblock_claims('', '[]', -1)`)
			require.NoError(t, l.Unlock(t.Context()))
		})
	}
}

// Broken by a client that believes in tables of its schema, and writes to those of another one.
func TestACopyThatUsesTheTablesOfItsOriginIsRefused(t *testing.T) {
	for what, copied := range map[string]string{
		"a function": `CREATE OR REPLACE FUNCTION copy.dblock_make(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE
			BEGIN ATOMIC SELECT locks.dblock_insert(lock_name); END`,
		"a view": "CREATE OR REPLACE VIEW copy.dblock_holders AS SELECT * FROM locks.dblock_holders",
	} {
		t.Run(what, func(t *testing.T) {
			db := dbtest.Empty(t, dbtest.KindPostgres)
			pool := db.SQL(t)
			for _, schema := range []string{"locks", "copy"} {
				require.NoError(t, migrate.Up(t.Context(), pool, migrate.Postgres, migrate.Locks.In(schema)))
			}
			client := clientOf(t, postgres.NewSQL(pool, postgres.Schema("copy")))
			require.NoError(t, client.CheckSchema(t.Context()), "tables that no copy is among")
			db.Exec(t, copied)
			for what, err := range map[string]error{
				"CheckSchema": client.CheckSchema(t.Context()),
				"TryLock":     require.ErrOf(client.TryLock(t.Context(), "n")),
			} {
				if !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), `use the tables of schema "locks"`) ||
					!strings.Contains(err.Error(), `migrate.Locks.In("copy")`) {
					t.Errorf("%s: %v", what, err)
				}
			}
			of := clientOf(t, postgres.NewSQL(pool, postgres.Schema("locks")))
			require.NoError(t, of.CheckSchema(t.Context()), "the origin")
		})
	}
}
