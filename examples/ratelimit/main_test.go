package main

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestTheAPIIsNeverCalledMoreOftenThanItTolerates(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite {
			dsn = ""
		}
		if err := run(t.Context(), dsn, 2, 3, 3); err != nil {
			t.Fatal(err)
		}
	})
}
