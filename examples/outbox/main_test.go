package main

import (
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(relayProcess); ok {
		exit(serve(text))
	}
	os.Exit(dbtest.Run(m))
}

// run itself kills a relay, and fails unless every message arrives in order and only the batch of
// the killed relay is sent twice.
func TestAKilledRelayLosesNoMessage(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite {
			dsn = ""
		}
		assert.NoError(t, run(t.Context(), dsn, 3*time.Second))
	})
}
