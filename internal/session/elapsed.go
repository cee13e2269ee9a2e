package session

import (
	"sync"
	"time"
)

var (
	started = time.Now()
	latest  struct {
		sync.Mutex
		time.Duration
	}
)

// elapsed returns the time since the program started, by the faster of two clocks. It never
// decreases.
func elapsed() time.Duration {
	now := time.Now()
	d := max(now.Sub(started), now.Round(0).Sub(started.Round(0)))
	latest.Lock()
	defer latest.Unlock()
	latest.Duration = max(latest.Duration, d)
	return latest.Duration
}
