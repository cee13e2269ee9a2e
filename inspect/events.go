package inspect

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/page"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Event is an entry in the history of a name.
type Event struct {
	ID       int64     // rises; of two events of one name by Record, Ask or Break the later has the higher ID
	At       time.Time // when it was written, by the database's clock
	Name     string
	Kind     string // "granted", "released", "lost", "expired", "asked", "broken", "ran", or a kind given to Record
	Token    int64  // of the lock; 0: none
	Host     string // of the holder; of Ask and Break, of their caller
	Thread   string
	Detail   string // the reason, the slot that a job has run, or the text given to Record
	Metadata map[string]string
}

// EventFilter selects events that match all of its fields. The zero value selects all events, from
// the oldest on.
type EventFilter struct {
	Name   string    // "": of all names
	Kinds  []string  // none: all
	After  int64     // only events with a higher ID
	Before int64     // only events with a lower ID; 0: any
	Since  time.Time // only events of this time or later, by the database's clock; the zero time: any
	Newest bool      // the highest ID first
	Limit  uint      // at most so many; 0: all
}

// Events reads the history in the order of IDs, a page at a time: the events that clients with
// dblock.WithEvents wrote, and those of Ask, Break and Record. An option of the reaper says for how
// long events are kept. The iteration ends after the first error. To continue later, set After to
// the last ID that was seen, or Before with Newest. A negative Before is ErrInvalidOption.
func (i *Inspector) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if f.Before < 0 {
			err := fmt.Errorf("%w: Before is %d: want 0 or more", dblock.ErrInvalidOption, f.Before)
			yield(Event{}, &dblock.LockError{Op: "events", Name: f.Name, Err: err})
			return
		}
		after, err := i.eventsAfter(ctx, f)
		if err != nil {
			yield(Event{}, err)
			return
		}
		want := driver.EventFilter{Name: f.Name, Kinds: f.Kinds, After: after, Before: f.Before, Newest: f.Newest}
		page.Each(f.Limit, yield, func(size int) (events []Event, more bool, err error) {
			var rows []protocol.Event
			err = i.read(ctx, "events", f.Name, func(ctx context.Context, engine driver.Backend) (err error) {
				rows, err = engine.Events(ctx, want, size)
				return err
			})
			for _, e := range rows {
				if want.Newest {
					want.Before = e.ID
				} else {
					want.After = e.ID
				}
				if !e.At.Before(f.Since) { // the order of IDs is only roughly that of times
					events = append(events, eventOf(e))
				}
			}
			return events, len(rows) == size, err
		})
	}
}

// eventsAfter returns an ID below those of all selected events.
func (i *Inspector) eventsAfter(ctx context.Context, f EventFilter) (id int64, err error) {
	if f.Since.IsZero() {
		return f.After, nil
	}
	err = i.read(ctx, "events", f.Name, func(ctx context.Context, engine driver.Backend) (err error) {
		id, err = engine.EventsSince(ctx, f.Since)
		return err
	})
	return max(id, f.After), err
}

func eventOf(e protocol.Event) Event {
	return Event{
		ID: e.ID, At: e.At, Name: e.Name, Kind: e.Kind, Token: e.Token, Host: e.Host, Thread: e.Thread,
		Detail: e.Detail, Metadata: metadataOf(e.Metadata),
	}
}
