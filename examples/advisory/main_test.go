package main

import (
	"errors"
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestEveryStepGoesAsItSays(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		var err error
		switch db.Kind {
		case dbtest.KindSQLite:
			err = run(t.Context(), "", "")
		case dbtest.KindPostgres:
			err = run(t.Context(), db.DSN, "")
		default:
			if err = run(t.Context(), db.DSN, ""); errors.Is(err, errNotPostgres) {
				err = nil
			}
		}
		require.NoError(t, err)
	})
}

func TestAPoolerGivesANaiveLockToTwo(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	require.NoError(t, run(t.Context(), db.DSN, db.PgBouncer(t, dbtest.PoolTransactions).DSN))
}
