package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
)

// minDetached is the shortest time that a lock is detached for.
const minDetached = time.Second

// Detach has the lock outlive this process: it stays held until d has passed, by the database's
// clock, with nobody's heartbeat. Client.Resume takes it up again before that, with its name and
// its token, in any process; if nobody does, it goes to the next as that of a dead client. For the
// edit lock of a web page between two requests, or a deployment over several steps. d: at least 1
// s.
//
// Context ends with cause ErrNotHeld, and Unlock does nothing then. While a transaction that the
// lock guards is open, Detach waits, for five seconds: call it after them. A process that is the
// same Owner enters the lock as ever.
//
// ErrInvalidOption for a shorter d. ErrUnsupported on a share, on a lock with a Lease, of LockAll,
// and where it was entered several times. ErrNotHeld after UnlockTx. ErrLost as Unlock. After these
// and any other error the lock is held as before, unless Context has ended: then it was given back,
// or is about to be, as by Unlock.
func (l *Lock) Detach(ctx context.Context, d time.Duration) error {
	return l.do("detach", func(core *client.Lock) error {
		if d < minDetached {
			return fmt.Errorf("%w: Detach %v: want at least %v", ErrInvalidOption, d, minDetached)
		}
		return core.Detach(ctx, d)
	})
}

// Resume takes up a lock that was detached (Lock.Detach) with its token, which it keeps. From then
// on it is a lock as any other: heartbeats keep it, and Unlock, or another Detach, ends it. Of
// several calls at once one has it. It does not wait for a holder.
//
// ErrNotHeld where nobody holds the name with that token, where its holder has not detached it,
// and where its time is over, also if nobody has it yet. ErrInvalidOption for a token below 1.
// ErrUnavailable after one TTL without an answer. After any error the lock is detached as before,
// or will be in a moment; a statement that was cut off and runs later still may give it back.
func (c *Client[TX]) Resume(ctx context.Context, name string, token int64) (*Lock, error) {
	want, err := wantOf(name, nil)
	if err != nil {
		return nil, &LockError{"resume", name, err}
	}
	if token < 1 {
		return nil, &LockError{"resume", name, fmt.Errorf("%w: token %d: want that of Lock.Token", ErrInvalidOption, token)}
	}
	l, err := c.Core().Resume(ctx, want.Name, token)
	if err != nil {
		return nil, &LockError{"resume", name, err}
	}
	return (*Lock)(l), nil
}
