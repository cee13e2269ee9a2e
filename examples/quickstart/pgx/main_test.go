package main

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestItRuns(t *testing.T) {
	if err := run(t.Context(), dbtest.Empty(t, dbtest.KindPostgres).DSN); err != nil {
		t.Fatal(err)
	}
}
