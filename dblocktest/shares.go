package dblocktest

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/driver"
)

func (l *line) Downgrade(ctx context.Context, h driver.Held) ([]driver.Handoff, error) {
	return ask(ctx, l, func() ([]driver.Handoff, error) { return l.downgrade(h) })
}

// downgrade keeps the token, and the time since when the name is held.
func (d *database) downgrade(h driver.Held) ([]driver.Handoff, error) {
	n, found, err := d.held(h)
	if err != nil || found.units > 0 {
		return nil, err
	}
	if len(n.queue) > 0 && n.capacity != 0 && n.capacity != driver.Readers {
		return nil, fmt.Errorf("%w: those who wait for %q want permits: keep the whole name, or release it",
			driver.ErrCapacity, h.Name)
	}
	n.endRun(false)
	found.units, found.of = 1, driver.Readers
	n.whole, n.shares, n.capacity = nil, append(n.shares, found), driver.Readers
	next, _ := d.handOn(n, h.Session)
	return next, nil
}

func (l *line) Upgrade(ctx context.Context, h driver.Held, attempt string) (driver.Grant, bool, error) {
	t, err := ask(ctx, l, func() (taken, error) { return l.upgrade(h, attempt) })
	return t.Grant, t.ok, err
}

// upgrade goes before the waiters: they could not have had the name before this share is released.
func (d *database) upgrade(h driver.Held, attempt string) (taken, error) {
	n := d.locks[h.Name]
	if n == nil {
		return taken{}, driver.ErrNotHeld
	}
	if w := n.whole; w == nil || w.session != h.Session || w.attempt != attempt {
		share := n.find(h.Session, h.Token)
		switch {
		case share == nil || share.attempt != attempt:
			return taken{}, driver.ErrNotHeld
		case n.used() != share.units:
			return taken{}, nil
		}
		n.token, n.since = max(n.token+1, d.now()), d.now()
		share.units, share.token, share.since, share.asked = 0, n.token, n.since, ""
		n.whole, n.shares, n.first, n.last = share, nil, n.token, n.token
	}
	holder := d.holder(n.whole)
	holder.Grant.Contended = len(n.queue) > 0
	return taken{holder.Grant, true}, nil
}
