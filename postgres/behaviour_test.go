package postgres_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/postgres"
)

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "pgx", Kind: enginetest.Postgres, Open: enginetest.OnPgx(postgres.New),
		Settings: enginetest.PostgresSettings, ReadOnly: enginetest.PostgresReadOnly,
	})
	enginetest.Run(t, enginetest.Wiring{
		Name: "database/sql", Kind: enginetest.Postgres, Open: enginetest.OnSQL(postgres.NewSQL), Again: true,
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
