package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/postgres"
)

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "pgx", Kind: enginetest.Postgres, Open: enginetest.OnPgx(func(pool *pgxpool.Pool) driver.Engine[pgx.Tx] { return postgres.New(pool) }),
		Settings: enginetest.PostgresSettings, ReadOnly: enginetest.PostgresReadOnly,
	})
	enginetest.Run(t, enginetest.Wiring{
		Name: "database/sql", Kind: enginetest.Postgres, Open: enginetest.OnSQL(func(db *sql.DB) driver.Engine[*sql.Tx] { return postgres.NewSQL(db) }), Again: true,
		Settings: enginetest.PostgresSettings, ReadOnly: enginetest.PostgresReadOnly,
	})
}

func TestAdvisoryBehaviour(t *testing.T) {
	enginetest.RunOwn(t, enginetest.OwnWiring{Name: "advisory", Kind: enginetest.Postgres, Shares: true, Open: func(t testing.TB, db dbtest.Database) (enginetest.OwnLocks, func(), error) {
		pool := db.Pool(t)
		c, err := postgres.Advisory(pool)
		return c, pool.Close, err
	}})
}
