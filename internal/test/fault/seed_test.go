//go:build unix

package fault

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

// lengthOf is the duration in a variable, or another one.
func lengthOf(t testing.TB, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}
