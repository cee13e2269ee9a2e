package mysql

import (
	"testing"
	"time"
)

func TestANapIsShorterThanTheReadTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: longestNap, time.Minute: longestNap, 6 * time.Second: longestNap, 3 * time.Second: 2 * time.Second,
		600 * time.Millisecond: 400 * time.Millisecond,
	} {
		if got := napWithin(timeout); got != want {
			t.Errorf("a read times out after %v: it sleeps %v, want %v", timeout, got, want)
		}
	}
}
