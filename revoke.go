package dblock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
)

// Asked receives the reason whenever a client calls Ask for the name while the lock is held: unlock
// when it suits. A reason that was not received gives way to a later one, and the same reason again
// is no news.
//
// From the first call on the client listens for that, on the connection on which it hears of
// grants. Without it, a client that does not happen to wait for anything learns with its next
// heartbeat (one that has more than 64 locks: within a TTL), also of Break; and so it does on MySQL
// and MariaDB where the wake-up falls together with that of a grant.
func (l *Lock) Asked() <-chan string { return get(l, (*client.Lock).Asked) }

// Ask tells all holders of the name that it is wanted, and why: they receive the reason
// from Lock.Asked, pushed where the engine can. It takes nothing away. It is recorded in the
// history, unless the database refuses that: neither Ask nor Break fails for it, and
// Stats.EventsDropped counts the event. reason: 1 to 1,024 bytes of UTF-8.
//
// ErrNotHeld where nobody holds the name.
func (c *Client[TX]) Ask(ctx context.Context, name, reason string) error {
	err := checkReason(name, reason)
	if err == nil {
		err = c.Core().Ask(ctx, name, reason)
	}
	return fail("ask", name, err)
}

// Break takes the name away from all of its holders, ends what MinHold keeps of it, also where
// nobody holds it, hands it on, and returns how many it was taken from. It is a theft in good
// order: the next holder has a higher token, so that what the old one still sends is refused where
// tokens are checked; a transaction that the old holder guards is waited for, until ctx ends; the
// old holder is told, and its context ends with ErrLost; it is recorded in the history, with the
// reason. What the old holder does without looking at its context or token may overlap with the
// next holder's work: try Ask first. reason: 1 to 1,024 bytes of UTF-8.
//
// With tokens it takes the name only from the holders that have one of them, as Inspect shows it
// (Participant.Token), shares and permits too: show the holder, let a person confirm, and force
// that one and no later one. The database compares the token when it takes the lock away. A token
// that holds nothing any more breaks nothing: 0 and nil. Where goroutines of one client pass a lock
// on in memory, any token of theirs stands for all of them. What MinHold keeps of the name ends if
// the holder that it was for is broken. A list that is spread out must not be empty: without tokens
// all holders are meant.
//
// ErrNotAcquired when ctx ends first: some of several may have lost it already. ErrInvalidOption
// for a token below 1, which nothing has (that of a waiter, say).
func (c *Client[TX]) Break(ctx context.Context, name, reason string, tokens ...int64) (holders int, err error) {
	if err := checkReason(name, reason); err != nil {
		return 0, &LockError{"break", name, err}
	}
	for _, token := range tokens {
		if token < 1 {
			return 0, &LockError{"break", name, fmt.Errorf("%w: token %d: want that of a holder, more than 0", ErrInvalidOption, token)}
		}
	}
	holders, err = c.Core().Break(ctx, name, reason, tokens)
	return holders, fail("break", name, err)
}

func checkReason(name, reason string) error {
	if err := contract.CheckText(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return checkDetail("reason", reason)
}
