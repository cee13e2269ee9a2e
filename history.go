package dblock

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/outage"
)

// The kinds of Event that the library writes.
const (
	granted  = "granted"
	released = "released"
	wasLost  = "lost"
	expired  = "expired"
	asked    = "asked"
	broken   = "broken"
)

const (
	// historyPause is how long events are gathered before they are written.
	historyPause = 100 * time.Millisecond
	// maxUnwritten is how many events wait for a database that is away; more are counted and
	// forgotten.
	maxUnwritten = 10_000
	// eventPage is how many events or names are read at a time.
	eventPage = 500
)

// Event is something that happened to a name.
type Event struct {
	ID       int64     // rises; of two events of one name that Record, Ask or Break wrote, the later has the higher
	At       time.Time // when it was written, by the database's clock
	Name     string
	Kind     string // "granted", "released", "lost", "expired", "asked", "broken", or one of Record's
	Token    int64  // of the lock concerned, 0 where there is none
	Host     string // of the holder concerned; of Ask and Break, of their caller
	Thread   string
	Detail   string // why
	Metadata map[string]string
}

// EventFilter chooses events. The zero value: all there are, from the oldest.
type EventFilter struct {
	Name  string   // "": of all names
	Kinds []string // none: all
	After int64    // only events with a higher ID
}

// Events reads the history, from the oldest event to the latest, a page at a time: what WithEvents
// has written, and what Ask, Break and Record have. How long it is kept is an option of the reaper.
// The iteration ends after the first error.
func (c *Client[TX]) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			var page []driver.Event
			err := c.inquire(ctx, "events", f.Name, func(ctx context.Context) (err error) {
				page, err = c.engine.Events(ctx, f.Name, f.Kinds, f.After, eventPage)
				return err
			})
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page {
				f.After = e.ID
				if !yield(eventOf(e), nil) {
					return
				}
			}
			if len(page) < eventPage {
				return
			}
		}
	}
}

func eventOf(e driver.Event) Event {
	return Event{
		ID: e.ID, At: e.At, Name: e.Name, Kind: e.Kind, Token: e.Token, Host: e.Host, Thread: e.Thread, Detail: e.Detail,
		Metadata: metadataOf(e.Metadata),
	}
}

// metadataOf reads what Metadata wrote. Others write tables too: what is no such object is none.
func metadataOf(text string) (kv map[string]string) {
	if text != "" && json.Unmarshal([]byte(text), &kv) != nil {
		return nil
	}
	return kv
}

// Record writes an event of the application's own into the history of the name, if the lock is
// still held, and tells all watchers of the name. kind: 1 to 32 ASCII letters; detail: at most
// 1,024 bytes of UTF-8. ErrLost if it is not held, and then nothing is written. ErrUnsupported on a
// lock without tables.
func (l *Lock[TX]) Record(ctx context.Context, kind, detail string) error {
	err := checkKind(kind)
	if err == nil && detail != "" {
		err = checkDetail("detail", detail)
	}
	if err != nil {
		return &LockError{"record", l.hold.name, err}
	}
	return l.regrade(ctx, "record", func(s *standing) error {
		e := l.client.event(l.hold, kind, detail)
		return l.client.statement(ctx, func(ctx context.Context) error {
			return l.client.engine.Announce(ctx, l.hold.held(), e)
		})
	})
}

func checkKind(kind string) error {
	if len(kind) < 1 || len(kind) > 32 {
		return fmt.Errorf("%w: the kind %q: want 1 to 32 ASCII letters", ErrInvalidOption, kind)
	}
	for _, r := range kind {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%w: the kind %q: want 1 to 32 ASCII letters", ErrInvalidOption, kind)
		}
	}
	return nil
}

// event is what is to be said of a hold.
func (c *Client[TX]) event(h *hold, kind, detail string) driver.Event {
	return driver.Event{
		Name: h.name, Kind: kind, Token: h.standing.Load().token, Session: h.life.ID, Host: h.owner.host, Thread: h.owner.thread,
		Detail: clean(detail), Metadata: h.metadata,
	}
}

// clean makes of any text one that every engine keeps.
func clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}

// checkDetail refuses what not every engine keeps.
func checkDetail(what, text string) error {
	switch {
	case text == "" || len(text) > maxReason:
		return fmt.Errorf("%w: the %s has %d bytes: want 1 to %d", ErrInvalidOption, what, len(text), maxReason)
	case clean(text) != text:
		return fmt.Errorf("%w: the %s %q is not UTF-8 without NUL", ErrInvalidOption, what, text)
	}
	return nil
}

// history is what is still to be written.
type history struct {
	report  *outage.Report
	dropped atomic.Int64 // events that will not be written, since the last that were

	writing sync.Mutex // one at a time, so that they are written in their order

	mu     sync.Mutex // protects what follows
	events []driver.Event
}

func (h *history) add(e driver.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) >= maxUnwritten {
		h.dropped.Add(1)
		return
	}
	h.events = append(h.events, e)
}

func (h *history) take() (events []driver.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, h.events = h.events, nil
	return events
}

// giveBack puts events that could not be written before those that came meanwhile.
func (h *history) giveBack(events []driver.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(events, h.events...)
}

// record notes what happened to a hold, where that is wanted.
func (c *Client[TX]) record(h *hold, kind, detail string) {
	if c.config.events && h.native == nil {
		c.history.add(c.event(h, kind, detail))
	}
}

// recordExpired notes that a name was taken from a holder whose time was over.
func (c *Client[TX]) recordExpired(name string, holder driver.Holder) {
	if c.config.events {
		c.history.add(driver.Event{
			Name: name, Kind: expired, Token: holder.Grant.Token, Session: holder.Session, Host: holder.Host, Thread: holder.Thread,
		})
	}
}

// keepHistory writes events until Close, which writes the last itself.
func (c *Client[TX]) keepHistory() {
	for c.background.Err() == nil {
		select {
		case <-c.background.Done():
			return
		case <-time.After(historyPause):
			c.writeHistory(c.tidying) // Close does not cut it short
		}
	}
}

// writeHistory writes what there is, and keeps it where the database does not answer.
func (c *Client[TX]) writeHistory(ctx context.Context) {
	h := c.history
	h.writing.Lock()
	defer h.writing.Unlock()
	events := h.take()
	for len(events) > 0 {
		page := events[:min(len(events), eventPage)]
		err := c.statement(ctx, func(ctx context.Context) error { return c.engine.Record(ctx, page) })
		switch {
		case err == nil:
			h.report.Worked()
			if lost := h.dropped.Swap(0); lost > 0 {
				c.config.log.Warn("dblock: events were lost: more than wait for the database", "lost", lost)
			}
			events = events[len(page):]
			continue
		case c.background.Err() != nil:
			c.config.log.Warn("dblock: the last events were not written", "lost", h.dropped.Add(int64(len(events))), "error", err)
		case transient(err):
			h.giveBack(events)
			h.report.Failed(err, "waiting", len(events), "lost", h.dropped.Load())
		default:
			h.report.Failed(err, "lost", h.dropped.Add(int64(len(events))))
		}
		return
	}
}
