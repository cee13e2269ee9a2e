package client

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/store"
)

// The kinds of event that the library writes.
const (
	KindGranted  = "granted"
	KindReleased = "released"
	KindLost     = "lost"
	KindExpired  = "expired"
	KindAsked    = "asked"
	KindBroken   = "broken"
)

const (
	// historyPause is how long events are gathered before they are written.
	historyPause = 100 * time.Millisecond
	// maxUnwritten is how many events wait for a database that is away; more are counted and
	// forgotten.
	maxUnwritten = 10_000
	// eventPage is how many events are written at a time.
	eventPage = 500
	// maxRefused is how many events the database may refuse one after the other before all that
	// wait are dropped: it refuses any event, then.
	maxRefused = 10
)

// history is what is still to be written of what happened to this client's locks.
type history struct {
	db      *store.Store
	ttl     time.Duration
	clock   clock.Clock
	write   func(ctx context.Context, events []driver.Event) error // nil: nothing is recorded
	log     *slog.Logger
	report  *outage.Report
	dropped atomic.Int64 // events that will not be written

	writing sync.Mutex // one at a time, so that they are written in their order; protects told
	told    int64      // how many of those dropped the log tells of

	mu     sync.Mutex // protects what follows
	events []driver.Event
}

// record notes what happened to a hold, where that is wanted.
func (y *history) record(h *ledger.Hold, kind, detail string) {
	if y.write != nil {
		y.add(h.Event(kind, Clean(detail, MaxReason)))
	}
}

// recordExpired notes that a name was taken from an expired holder.
func (y *history) recordExpired(name string, holder driver.Holder) {
	if y.write != nil {
		y.add(driver.Event{
			Name: name, Kind: KindExpired, Token: holder.Grant.Token, Session: holder.Session, Host: holder.Host, Thread: holder.Thread,
		})
	}
}

func (y *history) add(e driver.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.events) >= maxUnwritten {
		y.dropped.Add(1)
		return
	}
	y.events = append(y.events, e)
}

func (y *history) take() (events []driver.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	events, y.events = y.events, nil
	return events
}

// putBack puts events that could not be written before those that came meanwhile.
func (y *history) putBack(events []driver.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.events = append(events, y.events...)
}

// lose counts an event that is not written.
func (y *history) lose(err error) {
	y.dropped.Add(1)
	y.report.Failed(err, "lost", y.dropped.Load())
}

// run writes events until Close, which writes the last itself. While they cannot be written, it
// tries at growing intervals.
func (y *history) run() {
	timer := y.clock.NewTimer(historyPause)
	defer timer.Stop()
	for failures := 0; !y.db.Closing(); {
		wait := historyPause
		if failures > 0 {
			wait = backoff.Pause(failures, 2*historyPause, max(y.ttl, historyPause))
		}
		timer.Reset(wait)
		select {
		case <-y.db.Background.Done():
			return
		case <-timer.C:
		}
		if y.flush(y.db.Tidying) { // Close does not cut it short
			failures = 0
		} else {
			failures++
		}
	}
}

// flush writes what there is, and keeps it where the database does not answer. An event that the
// database refuses takes no other along: a page that is refused is written in halves. It returns
// false where nothing could be written.
func (y *history) flush(ctx context.Context) (ok bool) {
	y.writing.Lock()
	defer y.writing.Unlock()
	events, size, refused := y.take(), eventPage, 0
	for ok = true; len(events) > 0; {
		page := events[:min(len(events), size)]
		err := y.db.Call(ctx, func(ctx context.Context) error { return y.write(ctx, page) })
		switch {
		case err == nil:
			y.report.Worked()
			if lost := y.lost(); lost > 0 {
				y.log.Warn("dblock: events were lost: they were refused, or more than wait for the database", "lost", lost)
				y.told += lost
			}
			events, size, refused, ok = events[len(page):], eventPage, 0, true
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
				y.log.Warn("dblock: the last events were not written", "lost", y.lost(), "error", err)
			}
		}
		return false
	}
	return ok
}

// lost is how many events were dropped since events were last written. MUST be called with writing
// locked.
func (y *history) lost() int64 { return y.dropped.Load() - y.told }
