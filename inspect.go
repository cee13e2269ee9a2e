package dblock

import (
	"context"
	"crypto/rand"
	"errors"
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
	Rests    time.Duration // how long nobody gets it for the sake of MinHold
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
	Asked        string // why somebody asked it to let go
}

// Filter chooses names. The zero value: all that somebody holds or waits for.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // somebody has held it for at least so long
	Idle   bool          // also names that nobody holds or waits for, as long as the reaper has left them
}

// Inspect returns the holders of a name and its waiters. A name that nobody ever used is a name
// that nobody holds. ErrUnsupported on an engine without tables.
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
			err := c.inquire(ctx, "list", f.Prefix, func(ctx context.Context) (err error) {
				page, err = c.engine.Names(ctx, driver.Filter(f), after, eventPage)
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
			if len(page) < eventPage {
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
		begun := false
		tell := func(i Info, err error) bool { begun = true; return yield(i, err) }
		for first := true; ; first = false {
			err := c.watch(ctx, name, tell)
			switch {
			case err == nil:
				return
			case ctx != nil && ctx.Err() == nil && (begun && errors.Is(err, ErrReadOnly) || transient(err) && (!first || c.known())): // a failover
				pause(ctx, 100*time.Millisecond)
			default:
				yield(Info{}, &LockError{"watch", name, err})
				return
			}
		}
	}
}

// watch does so for as long as one session lives; nil: yield wants no more.
func (c *Client[TX]) watch(ctx context.Context, name string, yield func(Info, error) bool) error {
	var l *life
	id := rand.Text()
	err := c.inquire(ctx, "watch", name, func(ctx context.Context) (err error) {
		if l, err = c.living(ctx); err != nil {
			return err
		}
		return c.engine.Watch(ctx, l.ID, name, id)
	})
	if err != nil {
		return err
	}
	w := l.hub.Watch(name, id)
	defer func() {
		l.hub.Unwatch(w)
		if c.begin() != nil {
			return // a row too many goes with the session
		}
		go func() {
			defer c.calls.Done()
			_ = c.statement(c.tidying, func(ctx context.Context) error { return c.engine.Unwatch(ctx, name, id) })
		}()
	}()
	var last string
	var shown time.Time
	for {
		hinted := w.Hinted()
		info, err := c.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if seen := fingerprint(info); hinted || seen != last || time.Since(shown) > c.config.ttl/4 {
			last, shown = seen, time.Now()
			if !yield(info, nil) {
				return nil
			}
		}
		select {
		case <-w.News:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.background.Done():
			return ErrClosed
		case <-l.Context().Done():
			return driver.Fail(ErrUnavailable, errSessionOver)
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
	err = c.inquire(ctx, op, names[0], func(ctx context.Context) (err error) {
		details, err = c.engine.Describe(ctx, names)
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

// Incarnation is for how long a database has had the data that it has, for who must know that it
// lost none (package quorum).
type Incarnation struct {
	Age   time.Duration // since it was first asked, or last renewed
	Floor int64         // a token that none before was above; 0: nobody has said one
	Fresh bool          // this was the first time
}

// Incarnation asks the database for its memory, and with renew begins it anew, with a floor. A
// floor below 0 changes nothing, and has the database look at all its locks: Floor is then at least
// every token that it knows of. ErrUnsupported without tables.
func (c *Client[TX]) Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error) {
	var i driver.Incarnation
	err := c.inquire(ctx, "incarnation", "", func(ctx context.Context) (err error) {
		i, err = c.engine.Incarnation(ctx, renew, floor)
		return err
	})
	return Incarnation(i), err
}

// inquire runs a statement that no lock depends on, and again where a race was lost.
func (c *Client[TX]) inquire(ctx context.Context, op, name string, f func(ctx context.Context) error) error {
	fail := func(err error) error { return &LockError{op, name, err} }
	switch {
	case ctx == nil:
		return fail(fmt.Errorf("%w: the context is nil", ErrInvalidOption))
	case c.keeper != nil:
		return fail(fmt.Errorf("%w: it needs locks in tables", ErrUnsupported))
	}
	if err := c.begin(); err != nil {
		return fail(err)
	}
	defer c.calls.Done()
	for tries := 1; ; tries++ {
		err := c.statement(ctx, f)
		switch {
		case err == nil:
			return nil
		case !transient(err) || ctx.Err() != nil || tries >= 5:
			return fail(err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}
