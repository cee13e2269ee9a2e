package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestTheLockOutlivesOneDatabaseAndComesBackAfterTwo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	if err := run(t.Context(), &out, 5*time.Second); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, line := range []string{
		"We hold invoice/42, token ", "Two TTLs later we still hold the lock",
		"The lock says so: quorum: \"invoice/42\": lost",
		"it is held again by none: quorum: lock \"invoice/42\": ", "node 1 (berlin): ", "node 2 (paris): ",
		"We hold invoice/42 again, token ",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("it does not say %q:\n%s", line, &out)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestCtrlCEndsIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, run(ctx, &bytes.Buffer{}, time.Second), context.DeadlineExceeded)
}
