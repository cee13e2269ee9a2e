package faulttest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// seed is DBLOCK_SEED, or a new one. A failure prints it.
func seed(t testing.TB) uint64 {
	t.Helper()
	n := rand.Uint64()
	if text := os.Getenv("DBLOCK_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("DBLOCK_SEED: %v", err)
		}
	}
	t.Logf("DBLOCK_SEED=%d", n)
	return n
}

// historyLength is DBLOCK_HISTORY, or 10s.
func historyLength(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("DBLOCK_HISTORY")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("DBLOCK_HISTORY: %v", err)
	}
	return d
}
