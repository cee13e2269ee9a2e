package main

import (
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(candidacy); ok {
		exit(stand(text))
	}
	os.Exit(dbtest.Run(m))
}

// run itself fails unless tokens rise and a leader that was killed or asked to go is succeeded.
func TestLeadersSucceedEachOther(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite {
			dsn = ""
		}
		assert.NoError(t, run(t.Context(), dsn, 3*time.Second))
	})
}
