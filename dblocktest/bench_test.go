package dblocktest_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// BenchmarkNew makes a Fake and closes it, unused and after one lock, which opens a session.
func BenchmarkNew(b *testing.B) {
	b.Run("unused", func(b *testing.B) {
		for b.Loop() {
			t := &tb{TB: b}
			dblocktest.New[*Tx](t)
			t.end()
		}
	})
	b.Run("with one lock", func(b *testing.B) {
		for b.Loop() {
			t := &tb{TB: b}
			take(t, dblocktest.New[*Tx](t).Client, "n")
			t.end()
		}
	})
}

// BenchmarkLockUnlock is one pair.
func BenchmarkLockUnlock(b *testing.B) {
	c := dblocktest.New[*Tx](b).Client
	for b.Loop() {
		require.NoError(b, take(b, c, "n").Unlock(b.Context()))
	}
}

// BenchmarkAdvance lets a day go by for a client with a lock.
func BenchmarkAdvance(b *testing.B) {
	f := dblocktest.New[*Tx](b)
	take(b, f.Client, "n")
	for b.Loop() {
		f.Advance(24 * time.Hour)
	}
}
