// Package pq runs the behaviour suite of PostgreSQL with lib/pq.
package pq

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/lib/pq"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) {
	dbtest.PostgresDriver = "postgres"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "pq", Kind: enginetest.Postgres, Open: enginetest.OnSQL(func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }),
		// lib/pq knows one style of dates, and no modes of execution.
		Settings: enginetest.PostgresSettings[1:10], ReadOnly: enginetest.PostgresReadOnly,
	})
}
