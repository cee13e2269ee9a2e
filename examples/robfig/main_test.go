package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

func TestAJobRunsOnceEachTimeThatItIsDue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	runs := make(chan time.Time, 100)
	for range 3 {
		stop, err := serve(context.Background(), file, func(_ context.Context, _ *dblock.Lock, due time.Time) error {
			runs <- due
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
	}
	seen := map[time.Time]bool{}
	for range 4 {
		select {
		case due := <-runs:
			if due.Nanosecond() != 0 {
				t.Errorf("due at %v: not the time that was planned", due)
			}
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
