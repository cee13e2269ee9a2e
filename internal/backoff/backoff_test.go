package backoff

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second,
		1_000_000: 10 * time.Second,
	} {
		for range 100 {
			if got := Pause(failures, time.Second, 10*time.Second); got < want/2 || got > want {
				t.Fatalf("after %d failures: %v, want %v at most, and half of it at least", failures, got, want)
			}
		}
	}
	assert.Equal(t, Pause(3, time.Second, 0), 0, "a longest pause of 0")
}
