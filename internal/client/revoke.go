package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Ask tells all holders of a name why it is wanted. ErrNotHeld where there is none.
func (c *Client) Ask(ctx context.Context, name, reason string) error {
	return c.Inquire(ctx, func(ctx context.Context, engine driver.Backend) error {
		holders, err := engine.Ask(ctx, name, reason, c.signed(name, KindAsked, reason))
		if err == nil && holders == 0 {
			return worded{"nobody holds it", driver.ErrNotHeld}
		}
		return err
	})
}

// Break takes a name away from all of its holders, and returns how many it was taken from.
func (c *Client) Break(ctx context.Context, name, reason string) (int, error) {
	if ctx == nil {
		return 0, errNilContext
	}
	t, err := c.table()
	if err != nil {
		return 0, err
	}
	if err := c.begin(); err != nil {
		return 0, err
	}
	defer c.done()
	b := &breach{tables: t, name: name, reason: reason, taken: map[int64]bool{}, doubted: map[int64]bool{}}
	for {
		b.again = false
		err := t.inquire(ctx, b.once)
		switch {
		case err != nil && ctx.Err() != nil:
			return b.count(), c.notAcquired(driver.State{}, ended(ctx, err))
		case err != nil || !b.again:
			return b.count(), err
		}
		pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return b.count(), c.notAcquired(driver.State{}, fmt.Errorf("a transaction that a holder guards is still open: %w", context.Cause(ctx)))
		}
	}
}

// breach is one Break under way.
type breach struct {
	*tables
	name, reason string
	taken        map[int64]bool // by the token of each holder that is meant: whether it was taken away
	doubted      map[int64]bool // by token: whether an answer was lost
	rested       bool           // the cool-down of the name has to be ended
	again        bool           // a transaction of the application's is in the way
}

func (b *breach) count() (n int) {
	for _, yes := range b.taken {
		if yes {
			n++
		}
	}
	return n
}

// once goes over all holders.
func (b *breach) once(ctx context.Context) error {
	s, err := b.sessions.open(ctx)
	if err != nil {
		return err
	}
	details, err := b.engine.Describe(ctx, []string{b.name})
	if err != nil {
		return err
	}
	var holders []driver.Party
	if len(details) > 0 {
		holders = details[0].Holders
		b.rested = b.rested || details[0].Rest > 0
	}
	if b.rested {
		if err := b.endRest(ctx, s, len(holders) == 0); err != nil {
			return err
		}
	}
	if len(b.taken) == 0 {
		for _, p := range holders { // the present holders, and not those after them
			b.taken[p.Grant.Token] = false
		}
	}
	for token, may := range b.doubted {
		if may && !slices.ContainsFunc(holders, func(p driver.Party) bool { return p.Grant.Token == token }) {
			b.taken[token] = true
		}
	}
	for _, p := range holders {
		if done, meant := b.taken[p.Grant.Token]; !meant || done {
			continue
		}
		if err := b.take(ctx, s, p); err != nil {
			return err
		}
	}
	return b.engine.Stir(ctx, b.name) // watchers see it at once
}

// endRest comes first, so that what the holders give up is handed on.
func (b *breach) endRest(ctx context.Context, s *clientSession, free bool) error {
	_, err := b.engine.EndRest(ctx, b.name, b.signed(b.name, KindBroken, "its rest was ended: "+b.reason))
	if err == nil && free {
		_, err = b.reclaim(ctx, s, b.name, driver.Holder{})
	}
	if errors.Is(err, driver.ErrBusy) {
		b.again = true
		return nil
	}
	return err
}

// take takes the name from one holder.
func (b *breach) take(ctx context.Context, s *clientSession, p driver.Party) error {
	e := b.signed(b.name, KindBroken, fmt.Sprintf("taken from %s thread %s: %s", p.Host, p.Thread, b.reason))
	e.Token, e.Metadata = p.Grant.Token, p.Metadata
	_, taken, err := b.vacate(ctx, s, driver.Break(s.ID, b.name, p.Holder, e))
	switch {
	case errors.Is(err, driver.ErrBusy):
		b.again = true
		return nil
	case err != nil:
		b.doubted[p.Grant.Token] = residueOf(err) == unsure
		s.Check()
		return err
	case taken:
		b.taken[p.Grant.Token] = true
		if p.Session == s.ID { // its own session is not told by the database
			s.Check()
		}
	}
	return nil
}

// signed is an event that this process causes.
func (c *Client) signed(name, kind, detail string) driver.Event {
	return driver.Event{Name: name, Kind: kind, Host: c.config.Host, Thread: fmt.Sprint(os.Getpid()), Detail: detail}
}
