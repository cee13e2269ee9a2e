package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Downgrade makes a reader of a writer.
func (l *Lock) Downgrade(ctx context.Context) error {
	sent := false
	return l.convert(ctx, true, func(g rows, m mode) (mode, error) {
		if m.shared() && sent { // its answer was lost
			return m, nil
		}
		if m.shared() {
			return m, fmt.Errorf("%w: it is shared already", driver.ErrUnsupported)
		}
		if err := l.hold.once(); err != nil {
			return m, err
		}
		sent = true
		held := l.hold.held() // now, and not when the transition runs
		err := g.change(ctx, g.in, l.hold.name, func(n *protocol.Name) error { return protocol.Downgrade(n, held) })
		if err != nil {
			return m, err
		}
		m.units, m.of = 1, driver.Readers
		return m, nil
	})
}

// TryUpgrade makes a writer of a reader, if it is the only one.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	return l.convert(ctx, false, func(g rows, m mode) (mode, error) {
		if !m.shared() {
			return m, nil
		}
		if err := l.hold.once(); err != nil {
			return m, err
		}
		held := l.hold.held()
		var got driver.Grant
		var upgraded bool
		err := g.change(ctx, g.in, l.hold.name, func(n *protocol.Name) (err error) {
			got, upgraded, err = protocol.Upgrade(n, held, l.hold.id)
			return err
		})
		switch {
		case err != nil:
			return m, err
		case !upgraded:
			state, _ := g.look(ctx, g.in.ID, l.hold.name)
			return m, g.notAcquired(state, nil)
		}
		m.token, m.last, m.units, m.of = got.Token, got.Token, 0, 0
		return m, nil
	})
}

// Raise lifts the token to at least a value, and returns what it is then.
func (l *Lock) Raise(ctx context.Context, token int64) (raised int64, err error) {
	err = l.convert(ctx, false, func(g rows, m mode) (mode, error) {
		if m.shared() {
			return m, fmt.Errorf("%w: it is shared", driver.ErrUnsupported)
		}
		var err error
		if raised, err = g.raise(ctx, l.hold.held(), token); err == nil {
			m.token, m.last = raised, raised
		}
		return m, err
	})
	return raised, err
}

// Extend moves the end of a fixed lease, never back. Where no answer comes the earlier end stands
// here, whatever the database has.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	h := l.hold
	if !h.fixed {
		return fmt.Errorf("%w: the lock has no Lease", ErrInvalidOption)
	}
	return l.convert(ctx, false, func(g rows, m mode) (mode, error) {
		asked, held := g.config.Clock.Now(), h.held()
		var left time.Duration
		err := g.change(ctx, g.in, h.name, func(n *protocol.Name) (err error) {
			left, err = protocol.Extend(n, held, d)
			return err
		})
		if err != nil {
			return m, err
		}
		if !g.prolong(h, leaseEnd(left, asked, g.config.Clock.Now())) {
			g.expire(h)
			<-h.ctx.Done() // whatever took it out of the registry ends it
		}
		return m, nil
	})
}

// Record writes an event of the application's own, if the lock is held.
func (l *Lock) Record(ctx context.Context, kind, detail string) error {
	return l.convert(ctx, false, func(g rows, m mode) (mode, error) {
		held, e := l.hold.held(), eventOf(l.hold, kind, detail)
		return m, g.change(ctx, g.in, l.hold.name, func(n *protocol.Name) error { return protocol.Announce(n, held, e) })
	})
}

// once refuses to change what code relies on that entered the lock again. MUST be called with mu
// locked.
func (h *hold) once() error {
	if h.entries > 1 {
		return fmt.Errorf("%w: the lock was entered %d times", driver.ErrUnsupported, h.entries)
	}
	return nil
}

// conversion sends what changes the mode of a hold, and returns the mode that it has then.
type conversion func(g rows, m mode) (mode, error)

// convert changes what a lock is in the database, alone, and again where a race was lost. yielding:
// readers may come in beside it meanwhile.
func (l *Lock) convert(ctx context.Context, yielding bool, f conversion) error {
	if ctx == nil {
		return errNilContext
	}
	h := l.hold
	g := l.client.rows(h)
	if err := g.begin(); err != nil {
		return err
	}
	defer g.done()
	for away := g.absent(); ; {
		err := g.tryConvert(ctx, h, yielding, f)
		switch over := h.over(); { // it may have ended while the statement was at work
		case over != nil:
			return over
		case err == nil, err == errReleasedTx:
			return err
		case errors.Is(err, driver.ErrNotHeld):
			g.lose(h, err)
			return lost(err)
		case !g.transient(err) || away.tooLong(g.Client, err) || ctx.Err() != nil || !g.in.Alive():
			return err
		}
		pause(ctx, 10*time.Millisecond) // with nothing locked: what is in the way may need it
	}
}

// tryConvert does so once.
func (g rows) tryConvert(ctx context.Context, h *hold, yielding bool, f conversion) error {
	if err := lockWithin(ctx, h.mu.TryLock); err != nil { // a transaction relies on what it is, and waits perhaps
		return err
	}
	defer h.mu.Unlock()
	if err := lockWithin(ctx, h.conversion.TryLock); err != nil {
		return err
	}
	defer h.conversion.Unlock()
	if !g.registry.relies(h) {
		return g.unusable(h)
	}
	if err := g.ascertain(ctx, h); err != nil {
		return err
	}
	was := *h.mode.Load()
	during := was
	during.yielding = yielding
	h.mode.Store(&during)
	now, err := f(g, was)
	if err != nil && residueOf(err) == unsure {
		now.late, now.vague, now.yielding = true, true, yielding
	}
	h.mode.Store(&now)
	return err
}
