package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) {
	if source, ok := os.LookupEnv(lateWorker); ok {
		exit(beLate(context.Background(), source))
	}
	os.Exit(dbtest.Run(m))
}

// run itself fails unless exactly one report was written.
func TestOnlyTheHolderWrites(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite {
			dsn = ""
		}
		for _, pause := range []bool{false, true} {
			err := run(t.Context(), dsn, pause, 3*time.Second)
			if pause && db.Kind == dbtest.KindSQLite && errors.Is(err, dblock.ErrUnavailable) {
				t.Logf("stopped in the middle of a heartbeat, which keeps SQLite's file locked: %v", err)
				err = run(t.Context(), dsn, pause, 3*time.Second)
			}
			assert.NoError(t, err, "pause", pause)
		}
	})
}
