package main

import (
	"github.com/dblock-go/dblock/internal/testing/require"
	"path/filepath"
	"testing"
)

func TestItRuns(t *testing.T) {
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "quickstart.db")))
}
