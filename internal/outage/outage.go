// Package outage keeps the log readable while something fails again and again: it reports the first
// failure, then the failure that goes on, at growing intervals, and then the recovery with how long
// it took.
package outage

import (
	"log/slog"
	"sync"
	"time"
)

// The pauses between two reports of one outage.
const (
	firstPause   = 10 * time.Second
	longestPause = 10 * time.Minute
)

// Report tells of one kind of work. It is safe for concurrent use.
type Report struct {
	log  *slog.Logger
	what string

	mu       sync.Mutex // protects what follows
	began    time.Time  // of the outage; zero: there is none
	due      time.Time  // of the next report
	pause    time.Duration
	failures int
}

// New makes the report of a kind of work: "dblock: writing events", say, to which " fails" can be
// added.
func New(log *slog.Logger, what string) *Report { return &Report{log: log, what: what} }

// Failed counts a failure, and reports it where it is the first of an outage or a report is due.
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

// Worked reports the end of an outage, if there was one.
func (r *Report) Worked(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		return
	}
	r.log.Info(r.what+" works again", append([]any{"after", time.Since(r.began), "failures", r.failures}, args...)...)
	r.began, r.failures = time.Time{}, 0
}
