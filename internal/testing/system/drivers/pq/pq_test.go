// Package pq runs the behaviour suite of PostgreSQL with lib/pq.
package pq

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/lib/pq"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) {
	dbtest.PostgresDriver = "postgres"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "pq", Kind: suite.Postgres,
		Open: suite.OnSQL(func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }),
		// lib/pq knows one style of dates, and no modes of execution.
		Settings: suite.PostgresSettings[1:10], ReadOnly: suite.PostgresReadOnly,
	})
}
