package dblock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/operate"
)

// Asked receives the reason of each Ask for the name while the lock is held: unlock when it suits.
// A later reason replaces one that was not received. The same reason again is not sent twice.
//
// From the first call of Asked on, the client listens for reasons on the connection that notifies
// it of grants. Without such a call, a client that has no waiters learns of Ask and Break with its
// next heartbeat (with more than 64 locks: within a TTL). The same holds on MySQL and MariaDB if
// the notification coincides with that of a grant.
func (l *Lock) Asked() <-chan string { return get(l, (*client.Lock).Asked) }

// Ask sends a reason to all holders of the name, which receive it from Lock.Asked, pushed where the
// engine can. Ask takes no lock away. The history records it. If the database refuses that record,
// Ask succeeds, as Break does, and Stats.EventsDropped counts the event. reason: 1 to 1,024 bytes
// of UTF-8.
//
// ErrNotHeld if the name has no holder.
func (c *Client[TX]) Ask(ctx context.Context, name, reason string) error {
	core, err := c.core()
	if err == nil {
		err = checkReason(name, reason)
	}
	if err == nil {
		err = operate.Ask(ctx, core, name, reason)
	}
	return fail("ask", name, err)
}

// Break revokes the lock safely. It takes the name from all of its holders, ends a MinHold that has
// not elapsed, grants the name to the next waiters, and returns the number of holders that lost the
// name. The next holder has a higher token, so that late writes of the old one are refused where
// tokens are checked. While the old holder guards a transaction, Break waits, until ctx ends. The
// old holder's context ends with ErrLost. Its text has the host and the process of the caller, and
// the reason, 1 to 1,024 bytes of UTF-8, if the old holder's client can read them from the history
// within a tenth of a second. Work of the old holder that ignores its context and token may overlap
// with the next holder's: try Ask first.
//
// With tokens Break takes the name only from holders that have one of them, as package inspect
// shows it, shares and permits too: show the holder, let a person confirm, and revoke from that one
// and no later one. The database compares the token when it takes the lock away. If no holder has
// the token any more, Break returns 0 and nil. Without tokens Break means all holders, so that a
// list that is spread out must not be empty.
//
// Goroutines of one client that wait together pass the lock on in memory, and package inspect shows
// the last of their tokens until one of them has held it for longer than a heartbeat. That token
// means whichever of them has the lock. Their client is asked which one that is, and the others
// keep their places. A client that does not answer within a quarter of the TTL, or two seconds if
// that is longer, loses the lock for all of them, and those that still wait join the queue anew.
//
// ErrNotAcquired when ctx ends first: some of several holders may have lost the name already.
// ErrInvalidOption for a token below 1, such as that of a waiter.
func (c *Client[TX]) Break(ctx context.Context, name, reason string, tokens ...int64) (holders int, err error) {
	core, err := c.core()
	if err == nil {
		err = checkReason(name, reason)
	}
	if err != nil {
		return 0, &LockError{"break", name, err}
	}
	for _, token := range tokens {
		if token < 1 {
			err := fmt.Errorf("%w: token %d: want that of a holder, more than 0", ErrInvalidOption, token)
			return 0, &LockError{"break", name, err}
		}
	}
	holders, err = operate.Break(ctx, core, name, reason, tokens)
	return holders, fail("break", name, err)
}

func checkReason(name, reason string) error {
	if err := contract.CheckText(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return checkDetail("reason", reason)
}
