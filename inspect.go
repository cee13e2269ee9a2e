package dblock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Info is all there is to see of a name at one moment.
type Info struct {
	Name     string
	Token    int64         // the highest that was granted
	Capacity int           // the units of a semaphore; 0: it is none, or idle
	Holders  []Party       // one that has it alone, or those that share it, in the order of their tokens
	Waiters  []Party       // in the order in which they are served
	Rests    time.Duration // how long the name still cools down (MinHold)
}

// Party is a holder of a name, or a waiter.
type Party struct {
	Host, Thread string // the owner
	App          string // of its client
	PID          int
	Token        int64     // 0: it waits
	Shared       bool      // it wants or has the name together with others
	Permits      int       // units that it wants or has of a semaphore; 0: it is none
	Holds        int       // how often the owner has entered
	Since        time.Time // when it was granted, or joined the queue, by the database's clock
	Until        time.Time // when it ends if its client gives no sign of life any more, by this machine's clock
	Metadata     map[string]string
	Asked        string // why it was asked to release the lock
}

// Filter chooses names. The zero value: all names that have a holder or a waiter.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // a holder has held it for at least this long
	Idle   bool          // also names without holders and waiters, for as long as the reaper leaves them
}

// Inspect returns the holders of a name and its waiters. A name that was never used is a name
// without holders. ErrUnsupported on an engine without tables.
func (c *Client[TX]) Inspect(ctx context.Context, name string) (Info, error) {
	if err := checkText(name); err != nil {
		return Info{}, &LockError{"inspect", name, fmt.Errorf("%w: %w", ErrInvalidName, err)}
	}
	infos, err := c.describe(ctx, "inspect", []string{name})
	if err != nil || len(infos) == 0 {
		return Info{Name: name}, err
	}
	return infos[0], nil
}

// List tells the same of many names, in the order of their bytes, a page at a time: each as it was
// when its page was read. The iteration ends after the first error.
func (c *Client[TX]) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for after := ""; ; {
			var page []string
			err := c.inquire(ctx, "list", f.Prefix, func(ctx context.Context, engine driver.Backend) (err error) {
				page, err = engine.Names(ctx, driver.Filter(f), after, pageSize)
				return err
			})
			var infos []Info
			if err == nil && len(page) > 0 {
				infos, err = c.describe(ctx, "list", page)
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			after = page[len(page)-1]
		}
	}
}

// Watch yields what Inspect tells of a name, at first as it is, and then whenever it has changed,
// or a lock's Record was called, until ctx ends: that is the error of the last. It is woken by
// Record and Break, and when the holder's time is over; for other changes it looks a few times in
// each TTL (a client that polls: ten times a second). Of several changes in quick succession it may
// show the last only. A few times in each TTL it shows the same again, since a wake-up can be lost:
// to miss no event, read Events each time.
func (c *Client[TX]) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var last string
		var shown time.Time
		err := c.core.Watch(ctx, name, func(hinted bool) (more bool, err error) {
			info, err := c.Inspect(ctx, name)
			if err != nil {
				return false, err
			}
			if seen := fingerprint(info); hinted || seen != last || time.Since(shown) > c.TTL()/4 {
				last, shown = seen, time.Now()
				return yield(info, nil), nil
			}
			return true, nil
		})
		if err != nil {
			yield(Info{}, fail("watch", name, err))
		}
	}
}

// fingerprint is equal where nothing has changed but the time that is left.
func fingerprint(i Info) string {
	text := fmt.Sprint(i.Token, i.Capacity)
	for _, party := range append(i.Holders, i.Waiters...) {
		party.Until = time.Time{}
		text += fmt.Sprint(party)
	}
	return text
}

func (c *Client[TX]) describe(ctx context.Context, op string, names []string) (infos []Info, err error) {
	var details []driver.Detail
	err = c.inquire(ctx, op, names[0], func(ctx context.Context, engine driver.Backend) (err error) {
		details, err = engine.Describe(ctx, names)
		return err
	})
	now := time.Now()
	for _, d := range details {
		info := Info{Name: d.Name, Token: d.Token, Rests: max(d.Rest, 0)}
		if d.Capacity != driver.Readers {
			info.Capacity = d.Capacity
		}
		for _, p := range d.Holders {
			info.Holders = append(info.Holders, partyOf(p, info.Capacity, now))
		}
		for _, p := range d.Waiters {
			info.Waiters = append(info.Waiters, partyOf(p, info.Capacity, now))
		}
		infos = append(infos, info)
	}
	return infos, err
}

func partyOf(p driver.Party, capacity int, now time.Time) Party {
	party := Party{
		Host: p.Host, Thread: p.Thread, App: p.App, PID: p.PID, Token: p.Grant.Token, Shared: p.Units > 0, Holds: p.Holds,
		Since: p.Since, Until: now.Add(p.Left), Metadata: metadataOf(p.Metadata), Asked: p.Asked,
	}
	if capacity > 0 {
		party.Permits = p.Units
	}
	return party
}

// Incarnation is for how long a database has had the data that it has. Package quorum needs it,
// which must know that a database has lost none.
type Incarnation struct {
	Age   time.Duration // since it was first asked, or last renewed
	Floor int64         // a token that none before was above; 0: none was given
	Fresh bool          // this was the first time
}

// Incarnation asks the database for its memory, and with renew begins it anew, with a floor. A
// floor below 0 changes nothing, and has the database look at all its locks: Floor is then at least
// every token that it knows of. ErrUnsupported without tables.
func (c *Client[TX]) Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error) {
	var i driver.Incarnation
	err := c.inquire(ctx, "incarnation", "", func(ctx context.Context, engine driver.Backend) (err error) {
		i, err = engine.Incarnation(ctx, renew, floor)
		return err
	})
	return Incarnation(i), err
}

// inquire runs a statement that no lock depends on, and again where a race was lost.
func (c *Client[TX]) inquire(ctx context.Context, op, name string, f func(ctx context.Context, engine driver.Backend) error) error {
	return fail(op, name, c.core.Inquire(ctx, f))
}
