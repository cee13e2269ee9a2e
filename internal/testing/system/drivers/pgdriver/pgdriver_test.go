// Package pgdriver runs the behaviour suite of PostgreSQL with bun's driver.
package pgdriver

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/uptrace/bun/driver/pgdriver"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) {
	dbtest.PostgresDriver = "pg"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "pgdriver", Kind: suite.Postgres,
		Open: suite.OnSQL(func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }),
		// It knows no modes of execution.
		Settings: suite.PostgresSettings[:10], ReadOnly: suite.PostgresReadOnly,
	})
}
