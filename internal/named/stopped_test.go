package named_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// A process is stopped when its waiter has become the first of the queue: what it would send next
// stays with it. Broken by a server that keeps the connection of an idle waiter for as long as any
// other.
func TestAStoppedProcessLosesItsPlaceInTheNamedQueue(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		var short atomic.Int32
		resumed := make(chan struct{})
		stopped := s.keeper(s.tapped(func(text string) (string, error) {
			switch {
			case strings.HasPrefix(text, "SET SESSION wait_timeout = 10"):
				short.Add(1)
				text = strings.Replace(text, "wait_timeout = 10", "wait_timeout = 1", 1)
			case strings.Contains(text, "@@GLOBAL.read_only, GET_LOCK("): // what follows a wait
				<-resumed
			}
			return text, nil
		}, false))
		one, two := s.client(nil), s.client(nil)
		held := s.lock(one, "n")
		c, cancel := s.begin(stopped, "n", 1)
		behind, done := s.begin(two, "n", 2)
		s.unlock(held)
		p := s.granted(behind)
		close(resumed)
		s.unlock(p)
		s.unlock(s.granted(c))
		done()
		cancel()
		if short.Load() == 0 {
			t.Error("no waiter is bounded by 10 s")
		}
		s.nothingLeft("n")
		require.NoError(t, stopped.Close(context.Background()))
	})
}
