package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// nobody is ErrNotHeld with the text of Ask.
type nobody struct{}

func (nobody) Error() string { return "it has no holder" }
func (nobody) Unwrap() error { return driver.ErrNotHeld }

// Ask sends a reason to all holders of a name. ErrNotHeld if there is none.
func Ask(ctx context.Context, c *client.Client, name, reason string) error {
	return c.Store().Inquire(ctx, func(ctx context.Context) error {
		var asked protocol.Result
		e := signed(c, name, history.Asked, reason)
		err := withEvent(ctx, c, e, func(e protocol.Event) (err error) {
			asked, err = c.Store().Do(ctx, protocol.Ask{Name: name, Reason: reason, Event: e})
			return err
		})
		if err == nil && !asked.Done() {
			return nobody{}
		}
		return err
	})
}

// Break revokes a name from its holders with these tokens, without tokens from all. It returns the
// number of holders that lost the name. ErrNotAcquired if ctx ends first.
func Break(ctx context.Context, c *client.Client, name, reason string, tokens []int64) (int, error) {
	if ctx == nil {
		return 0, contract.ErrNilContext
	}
	if err := c.Store().Begin(); err != nil {
		return 0, err
	}
	defer c.Store().Done()
	b := &breach{
		Client: c, name: name, reason: reason, tokens: tokens, taken: map[int64]bool{}, doubted: map[int64]bool{},
	}
	for looks := 1; ; looks++ {
		b.again = nil
		err := c.Store().Quickly(ctx, b.once)
		switch {
		case err != nil && ctx.Err() != nil:
			return b.count(), c.NotAcquired(store.Ended(ctx, err))
		case err != nil || b.again == nil:
			return b.count(), err
		}
		store.Pause(ctx, backoff.Pause(looks, 10*time.Millisecond, 100*time.Millisecond))
		if ctx.Err() != nil {
			return b.count(), c.NotAcquired(fmt.Errorf("%w: %w", b.again, context.Cause(ctx)))
		}
	}
}

// breach is one call of Break.
type breach struct {
	*client.Client
	name, reason string
	tokens       []int64          // of the holders to revoke; none: all holders
	meant        []protocol.Grant // the grants of those holders, as far as they were read
	taken        map[int64]bool   // the tokens that were revoked
	doubted      map[int64]bool   // by token: the answer was lost
	rested       bool             // the cool-down of the name has to be ended
	restOf       int64            // only the cool-down of this token; 0: any
	asked        time.Duration    // when the client of a cohort was first asked which member has the lock
	again        error            // why the name has to be looked at again; nil: it has not
}

// answerTime returns for how long the client of a cohort is asked which member has the lock. A
// client without notifications learns of that with its next heartbeat. After that all of the cohort
// is revoked: its process may hang.
func answerTime(ttl time.Duration) time.Duration { return max(2*time.Second, ttl/4) }

var (
	errGuarded = errors.New("a transaction that a holder guards is still open")
	errPassed  = errors.New("the client of the holder passes the lock on in memory")
)

func (b *breach) count() int { return len(b.taken) }

// once tries to revoke the name from each of its holders.
func (b *breach) once(ctx context.Context) error {
	s, err := b.Sessions().Open(ctx, true)
	if err != nil {
		return err
	}
	states, err := b.Store().Engine.Read(ctx, s.ID, []string{b.name}, 1)
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
		act := b.take
		switch {
		case b.taken[p.Grant.Token]:
			continue
		case p.Grant.First < p.Grant.Token && (b.asked == 0 || b.Clock().Now() < b.asked+answerTime(b.TTL())):
			act = b.show
		}
		if err := act(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

// show asks the client of a cohort to show which of its members has the lock. Of the others none
// shall lose its place in the queue.
func (b *breach) show(ctx context.Context, s *store.Session, p driver.Participant) error {
	shown, err := b.Store().Do(ctx, protocol.Show{Name: b.name, Token: p.Grant.Token})
	switch {
	case errors.Is(err, driver.ErrBusy):
		b.again = errGuarded
		return nil
	case err != nil:
		return err
	case shown.Done() && b.asked == 0:
		b.asked = b.Clock().Now()
	}
	if p.Session == s.ID {
		s.Check()
	}
	b.again = errPassed
	return nil
}

// choose returns the holders to revoke: those with one of the tokens, or all that held the name
// when it was first read, but none that came later. The last token of a cohort, which is shown, is
// that of whichever member has the lock. Any other token is that of its member alone.
func (b *breach) choose(holders []driver.Participant) (chosen []driver.Participant) {
	if len(b.tokens) == 0 && len(b.meant) == 0 {
		for _, p := range holders {
			b.meant = append(b.meant, protocol.Grant{Token: p.Grant.Token})
		}
	}
	for _, p := range holders {
		for _, token := range b.tokens {
			switch {
			case token == p.Grant.Token:
				b.meant = append(b.meant, p.Grant)
			case p.Grant.Has(token):
				b.meant = append(b.meant, protocol.Grant{First: token, Token: token})
			}
		}
		meant := func(g protocol.Grant) bool { return g.First <= p.Grant.Token && p.Grant.First <= g.Token }
		if slices.ContainsFunc(b.meant, meant) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// rest sets which cool-down has to be ended: with tokens, only that of a chosen holder.
func (b *breach) rest(chosen []driver.Participant) {
	switch {
	case len(b.tokens) == 0:
		b.rested = true
	case len(chosen) > 0 && chosen[0].Units == 0:
		b.rested, b.restOf = true, chosen[0].Grant.Token
	}
}

// endRest ends the cool-down. It runs before the locks are revoked, so that the next waiters get
// them.
func (b *breach) endRest(ctx context.Context, s *store.Session, free bool) error {
	e := signed(b.Client, b.name, history.Broken, "its rest was ended: "+b.reason)
	err := withEvent(ctx, b.Client, e, func(e protocol.Event) error {
		_, err := b.Store().Do(ctx, protocol.EndRest{Name: b.name, Token: b.restOf, Event: e})
		return err
	})
	if err == nil && free {
		_, err = s.TakeOver(ctx, b.name, protocol.Holder{})
	}
	if errors.Is(err, driver.ErrBusy) {
		b.again = errGuarded
		return nil
	}
	return err
}

// take revokes the name from one holder.
func (b *breach) take(ctx context.Context, s *store.Session, p driver.Participant) error {
	e := signed(b.Client, b.name, history.Broken, history.TakenFrom(p.Host, p.Thread, b.reason))
	e.Token, e.Metadata = p.Grant.Token, p.Metadata
	var taken protocol.Result
	err := withEvent(ctx, b.Client, e, func(e protocol.Event) (err error) {
		taken, err = s.Do(ctx, protocol.Break(s.ID, b.name, p.Holder, e))
		return err
	})
	switch {
	case errors.Is(err, driver.ErrBusy):
		b.again = errGuarded
		return nil
	case err != nil:
		b.doubted[p.Grant.Token] = store.ResidueOf(err) == store.Unsure
		s.Check()
		return err
	case taken.Done():
		b.taken[p.Grant.Token] = true
		if p.Session == s.ID { // the database does not notify the asking session
			s.Check()
		}
	default: // the hold has expired, or its cohort was split since: a member has the lock, with a lower token
		b.again = errPassed
	}
	return nil
}

// withEvent runs an act that writes an event in its own transaction. The history never decides
// about an act: if the database refuses it, withEvent runs it without the event, and then writes
// the event by itself.
func withEvent(ctx context.Context, c *client.Client, e protocol.Event, act func(e protocol.Event) error) error {
	err := act(e)
	if !store.Refusal(err) && !(errors.Is(err, driver.ErrRefused) && errors.Is(err, driver.ErrUnavailable)) {
		return err
	}
	if err := act(protocol.Event{}); err != nil {
		return err
	}
	if err := c.Store().Engine.Record(ctx, []protocol.Event{e}); err != nil {
		c.History().Lose(err)
	}
	return nil
}

// signed returns an event with this process as its cause.
func signed(c *client.Client, name, kind, detail string) protocol.Event {
	return protocol.Event{Name: name, Kind: kind, Host: c.Host(), Thread: fmt.Sprint(os.Getpid()), Detail: detail}
}
