package dblocktest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/queue"
)

// taken is what Take and its like answer.
type taken struct {
	driver.Grant
	ok bool
}

func (l *line) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	t, err := ask(ctx, l, func() (taken, error) { return l.take(r), nil })
	return t.Grant, t.ok, err
}

func (l *line) TakeAll(ctx context.Context, rs []driver.Request) ([]driver.Grant, error) {
	return ask(ctx, l, func() (grants []driver.Grant, err error) {
		for _, r := range rs {
			t := l.take(r)
			if !t.ok {
				break
			}
			grants = append(grants, t.Grant)
		}
		return grants, nil
	})
}

// batched is what Batch answers.
type batched struct {
	grants   []driver.Grant
	released []bool
}

func (l *line) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) ([]driver.Grant, []bool, error) {
	b, err := ask(ctx, l, func() (b batched, err error) {
		for _, r := range takes {
			b.grants = append(b.grants, l.take(r).Grant)
		}
		for _, h := range releases {
			n := l.locks[h.Name]
			idle := n != nil && len(n.queue) == 0 && l.free(n, n.find(h.Session, h.Token))
			b.released = append(b.released, idle)
		}
		return b, nil
	})
	return b.grants, b.released, err
}

// standing is what decides about a name.
func (d *database) standing(n *name) queue.State {
	return queue.State{
		Held: n.whole != nil, Resting: n.rests > d.now(), Used: n.used(), Capacity: n.capacity, Waiters: len(n.queue),
	}
}

// take grants a request that fits, where nobody waits.
func (d *database) take(r driver.Request) taken {
	n := d.at(r.Name)
	if !d.standing(n).Free(r) {
		return taken{}
	}
	return taken{driver.Grant{Token: d.grant(n, r, 0), Lease: r.Lease}, true}
}

// grant gives a name, or units of it, to a request, with tokens for so many members of a run behind
// it. It returns the first token.
func (d *database) grant(n *name, r driver.Request, members int) (first int64) {
	now := d.now()
	first = max(n.token+1, now)
	n.token, n.since = first+int64(members), now
	h := &hold{
		session: r.Session, host: r.Host, thread: r.Thread, attempt: r.Attempt, units: r.Units, of: r.Of, token: n.token,
		holds: 1, since: now, metadata: r.Metadata,
	}
	if r.Lease > 0 {
		h.ends = now + micros(r.Lease)
	}
	if r.Units > 0 {
		n.capacity = d.standing(n).Beside(r.Of)
		n.shares = append(n.shares, h)
		return first
	}
	n.whole, n.first, n.last, n.rests = h, first, n.token, 0
	if r.MinHold > 0 {
		n.rests = now + micros(r.MinHold)
	}
	return first
}

// free takes the name from a holder; false: there is none. It grants nothing.
func (d *database) free(n *name, h *hold) bool {
	if h == nil {
		return false
	}
	if h == n.whole {
		n.whole, n.since = nil, d.now()
		return true
	}
	n.shares = slices.DeleteFunc(n.shares, func(other *hold) bool { return other == h })
	if len(n.shares) == 0 {
		n.since = d.now()
		return true
	}
	n.capacity = slices.MinFunc(n.shares, func(a, b *hold) int { return cmp.Compare(a.of, b.of) }).of
	return true
}

func (l *line) Reenter(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	t, err := ask(ctx, l, func() (taken, error) { return l.reenter(r), nil })
	return t.Grant, t.ok, err
}

// reenter gives the whole name to the same owner in another session.
func (d *database) reenter(r driver.Request) taken {
	n := d.locks[r.Name]
	if n == nil || n.whole == nil || n.whole.host != r.Host || n.whole.thread != r.Thread {
		return taken{}
	}
	old, rests := n.whole, n.rests
	n.endRun(false)
	token := d.grant(n, r, 0)
	if r.MinHold <= 0 {
		n.rests = rests
	}
	d.tell(old.session, driver.Hint{Attempt: old.attempt})
	return taken{driver.Grant{Token: token, Contended: len(n.queue) > 0, Lease: r.Lease}, true}
}

// held returns the holder that is meant. ErrNotHeld.
func (d *database) held(h driver.Held) (*name, *hold, error) {
	if n := d.locks[h.Name]; n != nil {
		if found := n.find(h.Session, h.Token); found != nil {
			return n, found, nil
		}
	}
	return nil, nil, driver.ErrNotHeld
}

func (l *line) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	return l.do(ctx, func() error {
		_, found, err := l.held(h)
		if err == nil && (found.units > 0) != h.Shared {
			err = driver.ErrNotHeld
		}
		if err == nil {
			found.holds = holds
		}
		return err
	})
}

func (l *line) Extend(ctx context.Context, h driver.Held, d time.Duration) (time.Duration, error) {
	return ask(ctx, l, func() (time.Duration, error) {
		_, found, err := l.held(h)
		if err != nil {
			return 0, err
		}
		if found.ends == 0 || found.ends <= l.now() || (found.units > 0) != h.Shared {
			return 0, driver.ErrNotHeld
		}
		found.ends = max(found.ends, l.now()+micros(d))
		return microseconds(found.ends - l.now()), nil
	})
}

func (l *line) Raise(ctx context.Context, h driver.Held, token int64) (int64, error) {
	return ask(ctx, l, func() (int64, error) { return l.raise(h, token) })
}

// raise also finds the token to which it was raised before, by a call whose answer was lost. It
// never raises a run: the tokens of its members would not be its own any more.
func (d *database) raise(h driver.Held, token int64) (int64, error) {
	n := d.locks[h.Name]
	if n == nil || n.whole == nil || n.whole.session != h.Session || n.inRun() || n.last != h.Token && n.last != token {
		return 0, driver.ErrNotHeld
	}
	n.token = max(n.token, token)
	n.last = max(n.last, token)
	n.first, n.whole.token = n.last, n.last
	return n.last, nil
}
