package dblock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// maxReason is how many bytes of a reason are kept.
const maxReason = 1024

// Asked receives the reason whenever somebody calls Ask for the name while the lock is held: unlock
// when it suits. A reason that was not received gives way to a later one, and the same reason again
// is no news.
//
// From the first call on the client listens for that, on the connection on which it hears of
// grants. Without it, a client that does not happen to wait for anything learns with its next
// heartbeat (one that has more than 64 locks: within a TTL), also of Break; and so it does on MySQL
// and MariaDB where the wake-up falls together with that of a grant.
func (l *Lock[TX]) Asked() <-chan string {
	if l.hold.native == nil {
		l.hold.life.hub.Attend()
	}
	return l.hold.asked
}

// ask passes a reason on, once. MUST be called with the client's mutex locked.
func (h *hold) ask(reason string) {
	if reason == "" || reason == h.reason {
		return
	}
	h.reason = reason
	select {
	case <-h.asked:
	default:
	}
	h.asked <- reason
}

// Ask tells all holders of the name that somebody wants it, and why: they receive the reason
// from Lock.Asked, pushed where the engine can. It takes nothing away. It is recorded in the
// history. reason: 1 to 1,024 bytes of UTF-8.
//
// ErrNotHeld where nobody holds the name. ErrUnsupported on an engine without tables.
func (c *Client[TX]) Ask(ctx context.Context, name, reason string) error {
	if err := checkReason(name, reason); err != nil {
		return &LockError{"ask", name, err}
	}
	return c.inquire(ctx, "ask", name, func(ctx context.Context) error {
		holders, err := c.engine.Ask(ctx, name, reason, c.signed(name, asked, reason))
		if err == nil && holders == 0 {
			return worded{"nobody holds it", ErrNotHeld}
		}
		return err
	})
}

// Break takes the name away from all of its holders, ends what MinHold keeps of it, also where
// nobody holds it, hands it on, and returns how many it was taken from. It is a theft in good
// order: the next holder has a higher token, so that what the old one still sends is refused where
// tokens are checked; a transaction that the old holder guards is waited for, until ctx ends; the
// old holder is told, and its context ends with ErrLost; it is recorded in the history, with the
// reason. What the old holder does without looking at its context or token may overlap with the
// next holder's work: try Ask first. reason: 1 to 1,024 bytes of UTF-8.
//
// ErrNotAcquired when ctx ends first: some of several may have lost it already. ErrUnsupported on
// an engine without tables.
func (c *Client[TX]) Break(ctx context.Context, name, reason string) (int, error) {
	if err := checkReason(name, reason); err != nil {
		return 0, &LockError{"break", name, err}
	}
	info, doubted := map[int64]bool{}, map[int64]bool{} // by token: whether it was taken away; whether that is not known
	rested := false
	for {
		again := false
		err := c.inquire(ctx, "break", name, func(ctx context.Context) error {
			l, err := c.living(ctx)
			if err != nil {
				return err
			}
			details, err := c.engine.Describe(ctx, []string{name})
			if err != nil {
				return err
			}
			var holders []driver.Party
			if len(details) > 0 {
				holders = details[0].Holders
				rested = rested || details[0].Rest > 0
			}
			if rested { // first, so that what the holders give up is handed on
				_, err := c.engine.EndRest(ctx, name, c.signed(name, broken, "its rest was ended: "+reason))
				if err == nil && len(holders) == 0 {
					_, err = c.reclaim(ctx, l, name, driver.Holder{})
				}
				switch {
				case errors.Is(err, driver.ErrBusy):
					again = true
				case err != nil:
					return err
				}
			}
			if len(info) == 0 {
				for _, p := range holders { // the present holders, and not those after them
					info[p.Grant.Token] = false
				}
			}
			for token, may := range doubted {
				if may && !slices.ContainsFunc(holders, func(p driver.Party) bool { return p.Grant.Token == token }) {
					info[token] = true
				}
			}
			for _, p := range holders {
				if done, meant := info[p.Grant.Token]; !meant || done {
					continue
				}
				asked := c.config.clock()
				next, taken, err := c.engine.Break(ctx, l.ID, name, p.Holder, c.breach(p, name, reason))
				l.hand(name, next, asked, err)
				switch {
				case errors.Is(err, driver.ErrBusy):
					again = true
				case err != nil:
					doubted[p.Grant.Token] = residueOf(err) == unsure
					l.Check()
					return err
				case taken:
					info[p.Grant.Token] = true
					if p.Session == l.ID { // its own session is not told by the database
						l.Check()
					}
				}
			}
			return c.engine.Stir(ctx, name) // watchers see it at once
		})
		switch {
		case err != nil && ctx != nil && ctx.Err() != nil:
			return count(info), &LockError{"break", name, notAcquired(driver.State{}, ended(ctx, err))}
		case err != nil || !again:
			return count(info), err
		}
		pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			cause := fmt.Errorf("a transaction that a holder guards is still open: %w", context.Cause(ctx))
			return count(info), &LockError{"break", name, notAcquired(driver.State{}, cause)}
		}
	}
}

func count(done map[int64]bool) (n int) {
	for _, yes := range done {
		if yes {
			n++
		}
	}
	return n
}

// signed is an event that this process causes.
func (c *Client[TX]) signed(name, kind, detail string) driver.Event {
	return driver.Event{Name: name, Kind: kind, Host: c.config.host, Thread: fmt.Sprint(os.Getpid()), Detail: detail}
}

// breach is the event of a theft, with the token that was taken away.
func (c *Client[TX]) breach(p driver.Party, name, reason string) driver.Event {
	e := c.signed(name, broken, fmt.Sprintf("taken from %s thread %s: %s", p.Host, p.Thread, reason))
	e.Token, e.Metadata = p.Grant.Token, p.Metadata
	return e
}

func checkReason(name, reason string) error {
	if err := checkText(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return checkDetail("reason", reason)
}
