package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/contracts"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/postgres"
)

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "pgx", Kind: suite.Postgres,
		Open:     suite.OnPgx(func(pool *pgxpool.Pool) dblock.Engine[pgx.Tx] { return postgres.New(pool) }),
		Settings: suite.PostgresSettings, ReadOnly: suite.PostgresReadOnly,
	})
	suite.Run(t, suite.Wiring{
		Name: "database/sql", Kind: suite.Postgres,
		Reach:    suite.EachDriver,
		Open:     suite.OnSQL(func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }),
		Settings: suite.PostgresSettings, ReadOnly: suite.PostgresReadOnly,
	})
}

func TestContracts(t *testing.T) {
	contracts.Run(t, dbtest.KindPostgres,
		func(t testing.TB, db dbtest.Database) driver.Backend {
			return inside.Of(postgres.New(db.Pool(t))).Backend
		})
}

func TestAdvisoryBehaviour(t *testing.T) {
	suite.RunOwn(t, suite.OwnWiring{Name: "advisory", Kind: suite.Postgres, Shares: true,
		Open: func(t testing.TB, db dbtest.Database) (suite.OwnLocks, func(), error) {
			pool := db.Pool(t)
			c, err := postgres.Advisory(pool)
			return c, pool.Close, err
		}})
}
