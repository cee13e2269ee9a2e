// Package pgdriver runs the behaviour suite of PostgreSQL with bun's driver.
package pgdriver

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/uptrace/bun/driver/pgdriver"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) {
	dbtest.PostgresDriver = "pg"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "pgdriver", Kind: enginetest.Postgres, Open: enginetest.OnSQL(func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }),
		// It knows no modes of execution.
		Settings: enginetest.PostgresSettings[:10], ReadOnly: enginetest.PostgresReadOnly,
	})
}
