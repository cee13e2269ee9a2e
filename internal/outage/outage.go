// Package outage keeps the log readable while some work fails again and again. It logs the first
// failure, the continuing outage at growing intervals, and the recovery with the length of the
// outage.
package outage

import (
	"log/slog"
	"sync"
	"time"
)

// The pauses between two log entries of one outage.
const (
	firstPause   = 10 * time.Second
	longestPause = 10 * time.Minute
)

// Report logs the outages of one kind of work. It is safe for concurrent use.
type Report struct {
	log  *slog.Logger
	what string

	mu       sync.Mutex // protects what follows
	began    time.Time  // of the outage; zero: there is none
	due      time.Time  // of the next log entry
	pause    time.Duration
	failures int
}

// New makes the report of a kind of work. what is a phrase that " fails" can follow, such as
// "dblock: writing events".
func New(log *slog.Logger, what string) *Report { return &Report{log: log, what: what} }

// Failed counts a failure. It logs the first one of an outage, and later ones when an entry is due.
func (r *Report) Failed(err error, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.failures++
	switch {
	case r.began.IsZero():
		r.began, r.pause = now, firstPause
	case now.Before(r.due):
		return
	default:
		r.pause = min(2*r.pause, longestPause)
	}
	r.due = now.Add(r.pause)
	if since := now.Sub(r.began); since > 0 {
		args = append([]any{"for", since, "failures", r.failures}, args...)
	}
	r.log.Warn(r.what+" fails", append(args, "error", err)...)
}

// Worked logs the end of an outage, if there was one.
func (r *Report) Worked(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		return
	}
	r.log.Info(r.what+" works again", append([]any{"after", time.Since(r.began), "failures", r.failures}, args...)...)
	r.began, r.failures = time.Time{}, 0
}
