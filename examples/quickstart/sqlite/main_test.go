package main

import (
	"path/filepath"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestItRuns(t *testing.T) {
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "quickstart.db")))
}
