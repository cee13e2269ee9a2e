package postgres_test

import (
	"testing"

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
	enginetest.RunNative(t, enginetest.Wiring{Name: "advisory", Kind: enginetest.Postgres, Open: enginetest.OnPgx(postgres.Advisory)}, true)
}
