package main

import (
	"path/filepath"
	"testing"
)

func TestItRuns(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "quickstart.db")); err != nil {
		t.Fatal(err)
	}
}
