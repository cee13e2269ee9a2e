package mysql

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestANapIsShorterThanTheReadTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: longestNap, time.Minute: longestNap, 6 * time.Second: longestNap, 3 * time.Second: 2 * time.Second,
		600 * time.Millisecond: 400 * time.Millisecond,
	} {
		assert.Equal(t, napWithin(timeout), want, "a read times out after", timeout, "it sleeps")
	}
}
