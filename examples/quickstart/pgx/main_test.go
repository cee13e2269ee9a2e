package main

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestItRuns(t *testing.T) {
	require.NoError(t, run(t.Context(), dbtest.Empty(t, dbtest.KindPostgres).DSN))
}
