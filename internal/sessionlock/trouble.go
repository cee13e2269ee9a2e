package sessionlock

import (
	"context"
	"math/rand/v2"
	"time"
)

// trouble is a series of failed attempts to wait for one name. An attempt whose wait lasts longer
// than the pause before it has stood in the server's queue, and ends the series: the next failure
// begins another one. A server that answers and refuses does not end it.
type trouble struct {
	since time.Time     // of the first failure; the zero time: there is none
	pause time.Duration // before the next try
}

// add counts a failure of a wait that lasted for stood, and reports whether it belongs to a series
// that had begun.
func (t *trouble) add(at time.Time, stood time.Duration) (again bool) {
	if t.since.IsZero() || stood > t.pause {
		*t = trouble{at, firstPause}
		return false
	}
	t.pause = min(2*t.pause, longestPause)
	return true
}

// over reports whether the series has lasted for limit or longer.
func (t *trouble) over(limit time.Duration) bool { return time.Since(t.since) >= limit }

// rest waits until the next attempt is due, or ctx ends. The pause is random, so that clients do
// not retry together.
func (t *trouble) rest(ctx context.Context) {
	if t.pause == 0 {
		return
	}
	timer := time.NewTimer(t.pause/2 + rand.N(t.pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
