package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// Broken by a line of the log before the lock ends, and by one that is waited for.
func TestALoggerThatBlocksDelaysNoLossAndNoClose(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		c := s.client(1, WithLogger(testlog.Stuck(end)))
		l := s.lock(c)
		s.set(func(s *server) { clear(s.data.sessions) }, 0, 1)
		time.Sleep(fakeTTL)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(l.Context()), dblock.ErrLost, "cause")
		s.unlock(s.lockAs(c, "other"))
		began := time.Now()
		if err := c.Close(context.Background()); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
