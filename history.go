package dblock

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/driver"
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

// EventFilter chooses events: those that match all of it. The zero value: all there are, from the
// oldest.
type EventFilter struct {
	Name   string    // "": of all names
	Kinds  []string  // none: all
	After  int64     // only events with a higher ID
	Before int64     // only events with a lower ID; 0: any
	Since  time.Time // only events of this time or later, by the database's clock; the zero time: any
	Newest bool      // the highest ID first
	Limit  uint      // at most so many; 0: all
}

// Events reads the history in the order of IDs, a page at a time: what WithEvents has written, and
// what Ask, Break and Record have. How long it is kept is an option of the reaper. The iteration
// ends after the first error. To go on later where it was left, give After the last ID that was
// seen, or Before with Newest. A negative Before is ErrInvalidOption.
func (c *Client[TX]) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if f.Before < 0 {
			yield(Event{}, &LockError{"events", f.Name, fmt.Errorf("%w: Before is %d: want 0 or more", ErrInvalidOption, f.Before)})
			return
		}
		after, err := c.eventsAfter(ctx, f)
		if err != nil {
			yield(Event{}, err)
			return
		}
		want := driver.EventFilter{Name: f.Name, Kinds: f.Kinds, After: after, Before: f.Before, Newest: f.Newest}
		pages(f.Limit, yield, func(size int) (events []Event, more bool, err error) {
			var page []driver.Event
			err = c.inquire(ctx, "events", f.Name, func(ctx context.Context, engine driver.Backend) (err error) {
				page, err = engine.Events(ctx, want, size)
				return err
			})
			for _, e := range page {
				if want.Newest {
					want.Before = e.ID
				} else {
					want.After = e.ID
				}
				if !e.At.Before(f.Since) { // ids are not quite in the order of times
					events = append(events, eventOf(e))
				}
			}
			return events, len(page) == size, err
		})
	}
}

// eventsAfter returns an ID that all events of the filter are above.
func (c *Client[TX]) eventsAfter(ctx context.Context, f EventFilter) (id int64, err error) {
	if f.Since.IsZero() {
		return f.After, nil
	}
	err = c.inquire(ctx, "events", f.Name, func(ctx context.Context, engine driver.Backend) (err error) {
		id, err = engine.EventsSince(ctx, f.Since)
		return err
	})
	return max(id, f.After), err
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
// 1,024 bytes of UTF-8. ErrLost if it is not held, and then nothing is written. Any other error
// says that the history has no such event; the lock stays as it is.
func (l *Lock[TX]) Record(ctx context.Context, kind, detail string) error {
	return l.do("record", func(core *client.Lock) error {
		err := checkKind(kind)
		if err == nil && detail != "" {
			err = checkDetail("detail", detail)
		}
		if err == nil {
			err = core.Record(ctx, kind, detail)
		}
		return err
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

// checkDetail refuses what not every engine keeps.
func checkDetail(what, text string) error {
	switch {
	case text == "" || len(text) > client.MaxReason:
		return fmt.Errorf("%w: the %s has %d bytes: want 1 to %d", ErrInvalidOption, what, len(text), client.MaxReason)
	case client.Clean(text) != text:
		return fmt.Errorf("%w: the %s %q is not UTF-8 without NUL", ErrInvalidOption, what, text)
	}
	return nil
}
