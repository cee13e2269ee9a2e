// Package outage keeps the log readable while some work fails again and again. It logs the first
// failure, the continuing outage at growing intervals, and the recovery with the length of the
// outage. Work that alternately fails and works counts as one long outage.
package outage

import (
	"log/slog"
	"sync"
	"time"
)

// firstPause and longestPause bound the pauses between two log entries of one outage. Work that
// fails again within firstPause of its recovery continues with the pauses of the outage before.
const (
	firstPause   = 10 * time.Second
	longestPause = 10 * time.Minute
)

// Report logs the outages of one kind of work. It is safe for concurrent use.
type Report struct {
	log  *slog.Logger
	what string

	mu       sync.Mutex // protects the fields below
	began    time.Time  // of the outage; zero: there is none
	ended    time.Time  // of the previous outage
	due      time.Time  // of the next log entry
	pause    time.Duration
	failures int
	told     bool // the outage was logged
}

// New makes the report of a kind of work, named by a phrase that " fails" can follow, such as
// "dblock: writing events".
func New(log *slog.Logger, what string) *Report { return &Report{log: log, what: what} }

// Failed counts a failure. It logs the first one of an outage, and later ones when an entry is due.
func (r *Report) Failed(err error, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.began.IsZero() {
		r.began = now
		if now.Sub(r.ended) >= firstPause {
			r.due, r.pause = now, 0
		}
	}
	if r.failures++; now.Before(r.due) {
		return
	}
	r.pause = min(max(2*r.pause, firstPause), longestPause)
	r.due, r.told = now.Add(r.pause), true
	if since := now.Sub(r.began); since > 0 {
		args = append([]any{"for", since, "failures", r.failures}, args...)
	}
	r.log.Warn(r.what+" fails", append(args, "error", err)...)
}

// Worked logs the end of an outage, if the outage was logged.
func (r *Report) Worked(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		return
	}
	if r.told {
		r.log.Info(r.what+" works again", append([]any{"after", time.Since(r.began), "failures", r.failures},
			args...)...)
	}
	r.began, r.ended, r.failures, r.told = time.Time{}, time.Now(), 0, false
}
