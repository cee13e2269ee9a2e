package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Ask tells all holders of a name why it is wanted. ErrNotHeld where there is none.
func (c *Client) Ask(ctx context.Context, name, reason string) error {
	return c.store.Inquire(ctx, func(ctx context.Context) error {
		var asked protocol.Result
		err := c.withEvent(ctx, c.signed(name, KindAsked, reason), func(e driver.Event) (err error) {
			asked, err = c.store.Do(ctx, protocol.Ask{Name: name, Reason: reason, Event: e})
			return err
		})
		if err == nil && !asked.Done() {
			return withMessage{"nobody holds it", driver.ErrNotHeld}
		}
		return err
	})
}

// Break takes a name away from its holders with these tokens, without tokens from all, and returns
// how many it was taken from.
func (c *Client) Break(ctx context.Context, name, reason string, tokens []int64) (int, error) {
	if ctx == nil {
		return 0, errNilContext
	}
	if err := c.store.Begin(); err != nil {
		return 0, err
	}
	defer c.store.Done()
	b := &breach{Client: c, name: name, reason: reason, tokens: tokens, taken: map[int64]bool{}, doubted: map[int64]bool{}}
	for {
		b.again = false
		err := c.store.Quickly(ctx, b.once)
		switch {
		case err != nil && ctx.Err() != nil:
			return b.count(), c.refused(store.Ended(ctx, err))
		case err != nil || !b.again:
			return b.count(), err
		}
		store.Pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return b.count(), c.refused(fmt.Errorf("a transaction that a holder guards is still open: %w", context.Cause(ctx)))
		}
	}
}

// breach is one Break under way.
type breach struct {
	*Client
	name, reason string
	tokens       []int64        // of the holders that are meant; none: all
	meant        []driver.Grant // the tokens of those holders that were seen
	taken        map[int64]bool // the tokens that were taken away
	doubted      map[int64]bool // by token: whether an answer was lost
	rested       bool           // the cool-down of the name has to be ended
	restOf       int64          // with this token, for which it is; 0: whichever
	again        bool           // a transaction of the application's is in the way, or another member of a cohort has the lock
}

func (b *breach) count() int { return len(b.taken) }

// once goes over all holders.
func (b *breach) once(ctx context.Context) error {
	s, err := b.sessions.Open(ctx, true)
	if err != nil {
		return err
	}
	states, err := b.store.Engine.Read(ctx, s.ID, []string{b.name}, 1)
	if err != nil {
		return err
	}
	is := append(states, driver.State{})[0]
	holders := is.Holders
	chosen := b.choose(holders)
	if is.Rest > 0 && !b.rested {
		b.rest(chosen)
	}
	if b.rested {
		if err := b.endRest(ctx, s, len(holders) == 0); err != nil {
			return err
		}
	}
	for token, may := range b.doubted {
		if may && !slices.ContainsFunc(holders, func(p driver.Participant) bool { return p.Grant.Token == token }) {
			b.taken[token] = true
		}
	}
	for _, p := range chosen {
		if b.taken[p.Grant.Token] {
			continue
		}
		if err := b.take(ctx, s, p); err != nil {
			return err
		}
	}
	_ = b.store.Engine.Stir(ctx, b.name) // watchers see it at once; a hint that is lost fails nothing
	return nil
}

// choose returns the holders that are meant: those with one of the tokens, or all that were there
// when it first saw any, and not those after them. A cohort that was meant stays so: its member
// that was detached has one of its tokens.
func (b *breach) choose(holders []driver.Participant) (chosen []driver.Participant) {
	if len(b.tokens) == 0 && len(b.meant) == 0 {
		for _, p := range holders {
			b.meant = append(b.meant, driver.Grant{Token: p.Grant.Token})
		}
	}
	for _, p := range holders {
		if slices.ContainsFunc(b.tokens, p.Grant.Has) {
			b.meant = append(b.meant, p.Grant)
		}
		if slices.ContainsFunc(b.meant, func(g driver.Grant) bool { return g.Has(p.Grant.Token) }) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// rest notes which cool-down has to be ended: with tokens, only that of the holder that is meant.
func (b *breach) rest(chosen []driver.Participant) {
	switch {
	case len(b.tokens) == 0:
		b.rested = true
	case len(chosen) > 0 && chosen[0].Units == 0:
		b.rested, b.restOf = true, chosen[0].Grant.Token
	}
}

// endRest comes first, so that what the holders give up is handed on.
func (b *breach) endRest(ctx context.Context, s *store.Session, free bool) error {
	err := b.withEvent(ctx, b.signed(b.name, KindBroken, "its rest was ended: "+b.reason), func(e driver.Event) error {
		_, err := b.store.Do(ctx, protocol.EndRest{Name: b.name, Token: b.restOf, Event: e})
		return err
	})
	if err == nil && free {
		_, err = s.Reclaim(ctx, b.name, driver.Holder{})
	}
	if errors.Is(err, driver.ErrBusy) {
		b.again = true
		return nil
	}
	return err
}

// take takes the name from one holder.
func (b *breach) take(ctx context.Context, s *store.Session, p driver.Participant) error {
	e := b.signed(b.name, KindBroken, fmt.Sprintf("taken from %s thread %s: %s", p.Host, p.Thread, b.reason))
	e.Token, e.Metadata = p.Grant.Token, p.Metadata
	var taken protocol.Result
	err := b.withEvent(ctx, e, func(e driver.Event) (err error) {
		taken, err = s.Do(ctx, protocol.Break(s.ID, b.name, p.Holder, e))
		return err
	})
	switch {
	case errors.Is(err, driver.ErrBusy):
		b.again = true
		return nil
	case err != nil:
		b.doubted[p.Grant.Token] = store.ResidueOf(err) == store.Unsure
		s.Check()
		return err
	case taken.Done():
		b.taken[p.Grant.Token] = true
		if p.Session == s.ID { // its own session is not told by the database
			s.Check()
		}
	default: // it is over, or a cohort whose member was detached since: it has the lock, with a lower token
		b.again = true
	}
	return nil
}

// withEvent runs an act that records an event in its own transaction. The history never decides
// about an act: what the database refuses is done once more without the event, which is then
// written by itself, or lost.
func (c *Client) withEvent(ctx context.Context, e driver.Event, act func(e driver.Event) error) error {
	err := act(e)
	if !store.Refusal(err) && !(errors.Is(err, driver.ErrRefused) && errors.Is(err, driver.ErrUnavailable)) {
		return err
	}
	if err := act(driver.Event{}); err != nil {
		return err
	}
	if err := c.store.Engine.Record(ctx, []driver.Event{e}); err != nil {
		c.history.lose(err)
	}
	return nil
}

// signed is an event that this process causes.
func (c *Client) signed(name, kind, detail string) driver.Event {
	return driver.Event{Name: name, Kind: kind, Host: c.config.Host, Thread: fmt.Sprint(os.Getpid()), Detail: detail}
}
