package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/inside"
)

// minDetached is the shortest time that a lock is detached for.
const minDetached = time.Second

// Detach lets the lock outlive this process: it stays held for d, by the database's clock, without
// a heartbeat. Until then Client.Resume takes it up again, with its name and its token, in any
// process. If no process does, the next waiter gets it as from a dead client. It is for the edit
// lock of a web page between two requests, or a deployment in several steps. d: at least 1 s.
//
// Context ends with cause ErrNotHeld, and Unlock does nothing then. Detach waits for up to five
// seconds while a transaction that the lock guards is open: call it after the transaction. A
// process of the same Owner enters the lock as before.
//
// ErrInvalidOption for a shorter d. ErrUnsupported on a share, on a lock with a Lease, of LockAll,
// or that was entered several times. ErrNotHeld after UnlockTx. ErrLost as Unlock. After any error
// the lock is held as before, unless Context has ended: then the client releases it, as Unlock
// does.
func (l *Lock) Detach(ctx context.Context, d time.Duration) error {
	core, err := l.valid()
	if err == nil && d < minDetached {
		err = fmt.Errorf("%w: Detach %v: want at least %v", ErrInvalidOption, d, minDetached)
	}
	if err == nil {
		err = core.Detach(ctx, d)
	}
	return fail("detach", l.Name(), err)
}

// Resume takes up a lock that was detached (Lock.Detach), by its token, which stays. From then on
// it is a lock like any other: heartbeats keep it until Unlock, or another Detach. Of several calls
// at once one gets the lock. Resume does not wait for a holder.
//
// ErrNotHeld if no holder has the name with that token, if its holder has not detached it, or if
// its time has passed, even if it has no new holder yet. The error names the holder, if there is
// one. ErrInvalidOption for a token below 1. ErrUnavailable after one TTL without an answer. After
// any error the lock is detached as before, or will be in a moment. A statement that was cut off
// and runs later may still release it.
func (c *Client[TX]) Resume(ctx context.Context, name string, token int64) (*Lock, error) {
	core, err := c.core()
	var want *client.Want
	if err == nil {
		want, err = wantOf(name, nil)
	}
	if err != nil {
		return nil, &LockError{"resume", name, err}
	}
	if token < 1 {
		err := fmt.Errorf("%w: token %d: want that of Lock.Token", ErrInvalidOption, token)
		return nil, &LockError{"resume", name, err}
	}
	l, err := core.Resume(ctx, want.Name, token)
	if err != nil {
		return nil, &LockError{"resume", name, err}
	}
	return inside.Make[Lock](l), nil
}
