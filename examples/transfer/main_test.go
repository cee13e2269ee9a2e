package main

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestNoMoneyIsMadeOrLost(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		switch db.Kind {
		case dbtest.KindSQLite:
			must(t, run(t.Context(), "", false, 4, 20))
		case dbtest.KindPostgres:
			must(t, run(t.Context(), db.DSN, true, 4, 20))
			fallthrough
		default:
			must(t, run(t.Context(), db.DSN, false, 4, 20))
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
