package dblock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// Info is all there is to see of a name at one moment.
type Info struct {
	Name     string
	Token    int64         // the highest that was granted
	Capacity int           // the units of a semaphore, the smallest number that a holder states; 0: it is none, or idle
	Holders  []Participant // one that has it alone, or those that share it, in the order of their tokens
	Waiters  []Participant // in the order in which they are served; of List only the first 10
	Queued   int           // how many wait
	Rests    time.Duration // how long the name still cools down (MinHold)
}

// Participant is a holder of a name, or a waiter.
type Participant struct {
	Host, Thread string // the owner
	Session      string // of its client, as Sessions lists it
	App          string // of its client
	PID          int
	Token        int64     // 0: it waits
	Shared       bool      // it wants or has the name together with others
	Permits      int       // units that it wants or has of a semaphore; 0: it is none
	Since        time.Time // when it was granted, or joined the queue, by the database's clock
	Until        time.Time // when it ends if its client gives no sign of life any more, by this machine's clock
	Alive        bool      // that time is not over; what is not alive is taken away by the next waiter, or by the reaper
	Metadata     map[string]string
	Asked        string // why it was asked to release the lock
}

// Filter chooses names. The zero value: all names that have a holder or a waiter.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // a holder has held it for at least this long
	Idle   bool          // also names without holders and waiters, for as long as the reaper leaves them

	Contended bool   // only names with waiters
	After     string // only names above this one, byte for byte: the last of a page, to go on behind it
	Limit     uint   // at most so many names; 0: all
}

// firstWaiters is how many waiters of a name List shows.
const firstWaiters = 10

// Inspect returns the holders of a name and its waiters. A name that was never used is a name
// without holders. Where goroutines of one client pass a lock on in memory, the first of them is
// shown for up to 20 ms, and those that it was granted with are no waiters.
func (c *Client[TX]) Inspect(ctx context.Context, name string) (Info, error) {
	if err := contract.CheckText(name); err != nil {
		return Info{}, &LockError{"inspect", name, fmt.Errorf("%w: %w", ErrInvalidName, err)}
	}
	infos, err := c.describe(ctx, "inspect", []string{name}, driver.AllWaiters)
	if err != nil || len(infos) == 0 {
		return Info{Name: name}, err
	}
	return infos[0], nil
}

// List tells the same of many names, in the order of their bytes, a page at a time: each as it was
// when its page was read. Of a queue it reads the first 10 places, on MySQL and MariaDB those of a
// longer queue a moment after the holders; Queued is how many there are. The iteration ends after
// the first error. To go on later where it was left, give Filter.After the last name that was seen.
func (c *Client[TX]) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		want := driver.Filter{Prefix: f.Prefix, Host: f.Host, Older: f.Older, Idle: f.Idle, Contended: f.Contended, After: f.After}
		pages(f.Limit, yield, func(size int) (infos []Info, more bool, err error) {
			var names []string
			err = c.inquire(ctx, "list", f.Prefix, func(ctx context.Context, engine driver.Backend) (err error) {
				names, err = engine.Names(ctx, want, size)
				return err
			})
			if err != nil || len(names) == 0 {
				return nil, false, err
			}
			want.After = names[len(names)-1]
			infos, err = c.describe(ctx, "list", names, firstWaiters)
			return infos, len(names) == size, err
		})
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
		err := c.Core().Watch(ctx, name, func(hinted bool) (more bool, err error) {
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
	for _, participant := range append(i.Holders, i.Waiters...) {
		participant.Until = time.Time{}
		text += fmt.Sprint(participant)
	}
	return text
}

func (c *Client[TX]) describe(ctx context.Context, op string, names []string, waiters int) (infos []Info, err error) {
	var details []driver.Detail
	err = c.inquire(ctx, op, names[0], func(ctx context.Context, engine driver.Backend) (err error) {
		details, err = engine.Describe(ctx, names, waiters)
		return err
	})
	now := time.Now()
	for _, d := range details {
		info := Info{Name: d.Name, Token: d.Token, Queued: d.Queued, Rests: max(d.Rest, 0)}
		if d.Capacity != driver.Readers {
			info.Capacity = d.Capacity
		}
		for _, p := range d.Holders {
			info.Holders = append(info.Holders, participantOf(p, info.Capacity, now))
		}
		for _, p := range d.Waiters {
			info.Waiters = append(info.Waiters, participantOf(p, info.Capacity, now))
		}
		infos = append(infos, info)
	}
	return infos, err
}

func participantOf(p driver.Participant, capacity int, now time.Time) Participant {
	participant := Participant{
		Host: p.Host, Thread: p.Thread, Session: p.Session, App: p.App, PID: p.PID, Token: p.Grant.Token, Shared: p.Units > 0,
		Since: p.Since, Until: endAfter(now, p.Left), Alive: p.Left > 0, Metadata: metadataOf(p.Metadata), Asked: p.Asked,
	}
	if capacity > 0 {
		participant.Permits = p.Units
	}
	return participant
}

// inquire runs a statement that no lock depends on, and again where a race was lost.
func (c *Client[TX]) inquire(ctx context.Context, op, name string, f func(ctx context.Context, engine driver.Backend) error) error {
	return fail(op, name, c.Core().Inquire(ctx, f))
}
