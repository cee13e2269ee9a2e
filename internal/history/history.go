package history

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// The kinds of events that the library writes.
const (
	Granted  = "granted"
	Released = "released"
	Lost     = "lost"
	Expired  = "expired"
	Asked    = "asked"
	Broken   = "broken"
	Ran      = "ran" // of the lock of a job: it has run a slot
)

const (
	// gathering is the pause before events are written.
	gathering = 100 * time.Millisecond
	// maxWaiting limits the events that wait for a database which does not answer.
	maxWaiting = 10_000
	// largestPage limits the events that are written at a time.
	largestPage = 500
	// maxRefused limits the events that the database may refuse one after the other. After that all
	// waiting events are dropped, since the database refuses any event.
	maxRefused = 10
)

// Config configures a History.
type Config struct {
	On    bool          // false: Add does nothing
	TTL   time.Duration // the longest pause while the database does not answer
	Clock clock.Clock
	Log   *slog.Logger
}

// History has the events of a client that are still to be written.
type History struct {
	db      *store.Store
	config  Config
	report  *outage.Report
	dropped atomic.Int64 // events that will not be written

	writing  sync.Mutex // one page at a time, so that events keep their order; protects reported
	reported int64      // the number of dropped events that were logged

	mu     sync.Mutex // protects events
	events []protocol.Event
}

// New makes the history of a client. It starts nothing.
func New(db *store.Store, c Config) *History {
	return &History{db: db, config: c, report: outage.New(c.Log, "dblock: writing events")}
}

// On reports whether events are written.
func (y *History) On() bool { return y.config.On }

// Add adds an event, to be written in the background.
func (y *History) Add(e protocol.Event) {
	if !y.config.On {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.events) >= maxWaiting {
		y.dropped.Add(1)
		return
	}
	y.events = append(y.events, e)
}

// Expired adds that a name was taken from a dead holder, and why it is dead; "": its lease has
// expired.
func (y *History) Expired(name string, holder protocol.Holder, because string) {
	y.Add(protocol.Event{
		Name: name, Kind: Expired, Token: holder.Grant.Token, Session: holder.Session,
		Host: holder.Host, Thread: holder.Thread, Detail: because,
	})
}

// Lose counts an event that the database has refused.
func (y *History) Lose(err error) {
	y.dropped.Add(1)
	y.report.Failed(err, "lost", y.dropped.Load())
}

// Dropped returns the number of events that will not be written.
func (y *History) Dropped() int64 { return y.dropped.Load() }

func (y *History) take() (events []protocol.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	events, y.events = y.events, nil
	return events
}

// putBack puts events that could not be written in front of those that were added meanwhile.
func (y *History) putBack(events []protocol.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.events = append(events, y.events...)
}

// WriteUntilClosed writes events until Close begins; Close flushes the last. After a failure the
// pauses grow.
func (y *History) WriteUntilClosed() {
	timer := y.config.Clock.NewTimer(gathering)
	defer timer.Stop()
	for failures := 0; !y.db.Closing(); {
		wait := gathering
		if failures > 0 {
			wait = backoff.Pause(failures, 2*gathering, max(y.config.TTL, gathering))
		}
		timer.Reset(wait)
		select {
		case <-y.db.Background.Done():
			return
		case <-timer.C:
		}
		if y.Flush(y.db.Tidying) { // Close does not cut the write short
			failures = 0
		} else {
			failures++
		}
	}
}

// Flush writes all events, and keeps those for which the database gave no answer. It returns false
// if the last try has failed.
func (y *History) Flush(ctx context.Context) (ok bool) {
	y.writing.Lock()
	defer y.writing.Unlock()
	events, size, refused := y.take(), largestPage, 0
	for ok = true; len(events) > 0; {
		page := events[:min(len(events), size)]
		err := y.db.Call(ctx, func(ctx context.Context) error { return y.db.Engine.Record(ctx, page) })
		switch {
		case err == nil:
			y.report.Worked()
			if lost := y.lost(); lost > 0 {
				y.config.Log.Warn("dblock: events were lost: they were refused, or more than wait for the database",
					"lost", lost)
				y.reported += lost
			}
			events, size, refused, ok = events[len(page):], largestPage, 0, true
			continue
		case store.Refusal(err) && len(page) > 1:
			size = len(page) / 2
			continue
		case store.Refusal(err) && refused < maxRefused:
			y.dropped.Add(1)
			y.report.Failed(err, "lost", y.lost())
			events, ok = events[1:], false
			refused++
			continue
		case y.db.Transient(err) && !y.db.Closing():
			y.putBack(events)
			y.report.Failed(err, "waiting", len(events), "lost", y.lost())
		default:
			y.dropped.Add(int64(len(events)))
			if y.report.Failed(err, "lost", y.lost()); y.db.Closing() {
				y.config.Log.Warn("dblock: the last events were not written", "lost", y.lost(), "error", err)
			}
		}
		return false
	}
	return ok
}

// lost returns the number of events that were dropped since events were last written. MUST be
// called with writing locked.
func (y *History) lost() int64 { return y.dropped.Load() - y.reported }
