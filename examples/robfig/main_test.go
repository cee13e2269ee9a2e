package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAJobRunsOnceEachTimeThatItIsDue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	runs := make(chan time.Time, 100)
	for range 3 {
		stop, err := serve(context.Background(), file, func(_ context.Context, _ *dblock.Lock, due time.Time) error {
			runs <- due
			return nil
		})
		require.NoError(t, err)
		defer func() {
			assert.NoError(t, stop())
		}()
	}
	seen := map[time.Time]bool{}
	for range 4 {
		select {
		case due := <-runs:
			assert.Equal(t, due.Nanosecond(), 0, "due at", due, "not the time that was planned")
			if seen[due.UTC()] {
				t.Errorf("run twice: %v", due)
			}
			seen[due.UTC()] = true
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was run")
		}
	}
	<-time.After(500 * time.Millisecond) // in which the others might run the last one again
	select {
	case due := <-runs:
		if seen[due.UTC()] {
			t.Errorf("run twice: %v", due)
		}
	default:
	}
}
