package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

var errGrantedAgain = errors.New("the database granted the name again")

// How a hold ends:
//
//	LoseSession, a fixed lease, Lose  -> revoke -> cut -> End
//	Rely, of a later grant            -> cut -> End
//	Drop (Unlock), Lend (LockTx)      -> EndBy -> End
//
// EndBy and revoke remove the hold from the table, so that one of them ends it. cut leaves
// the context of a hold that UnlockTx has released open for a TTL. End ends the context.

// ErrReleasedTx: UnlockTx was called, and only Guard shows whether its transaction was rolled back.
var ErrReleasedTx = fmt.Errorf("%w: UnlockTx was called: after a rollback, call Guard first", driver.ErrNotHeld)

// maxLossLines limits the locks that the log names when several are lost together.
const maxLossLines = 10

// Ending is how a hold ends without Unlock.
type Ending struct {
	Event Event
	Cause error // with which its context ends
}

// Released reports whether UnlockTx has released the hold, which is then not lost.
func (e Ending) Released() bool { return e.Event == Commit }

// ending returns how a hold ends that the database does not have any more: lost, unless an UnlockTx
// has succeeded. A rollback with a takeover after it cannot be told from a commit. A hold
// with a fixed lease stays known while its session lives: a transaction that it guards may still be
// open, and only a takeover checks the guard. MUST be called with mu locked.
func (h *Hold) ending(reason error) Ending {
	alive := h.In.Over() == nil
	if h.state == AwaitingTx && alive && !errors.Is(reason, contract.ErrLeaseOver) {
		return Ending{Commit, fmt.Errorf("%w: released by UnlockTx", driver.ErrNotHeld)}
	}
	if h.Fixed() && alive {
		return Ending{Expire, h.lost(reason)}
	}
	return Ending{Lose, h.lost(reason)}
}

// Rely enters the hold of a grant, unless the grant came too late. A fixed lease counts from the
// time of its request.
func (l *Ledger) Rely(h *Hold, asked time.Duration) bool {
	if h.Fixed() {
		h.lease = clock.NewDeadline(l.config.Clock, LeaseEnd(h.Grant.Lease, asked, h.Began))
	}
	before, how, added := l.add(h, func() bool {
		if !h.In.Alive() || h.Fixed() && h.Expiry() <= h.Began {
			return false
		}
		if h.Fixed() {
			l.watchLease(h)
		}
		return true
	})
	if before != nil { // the client did not know that before had ended
		l.cut(before, how)
		l.config.Ended(before, how)
		if !how.Released() {
			l.LogLoss(before)
		}
	}
	return added
}

// revoke ends holds without Unlock, and returns those that are lost. Their contexts end one
// directly after the other: nothing else may stand between a deadline and the last context that
// must end at it.
func (l *Ledger) revoke(reason error, holds ...*Hold) (lost []*Hold) {
	hows := make(map[*Hold]Ending, len(holds))
	for _, h := range holds {
		l.mu.Lock()
		how := h.ending(reason)
		ended := l.remove(h, how.Event)
		l.mu.Unlock()
		if ended {
			l.cut(h, how)
			hows[h] = how
		}
	}
	for h, how := range hows {
		l.config.Ended(h, how)
		if !how.Released() {
			lost = append(lost, h)
		}
	}
	return lost
}

// cut ends the context of a hold that was removed. The context of a hold that UnlockTx has
// released stays open for a TTL, or until Unlock or Close: the Commit that released it may be
// reading its answer with that context.
func (l *Ledger) cut(h *Hold, how Ending) {
	if !how.Released() {
		l.End(h, how.Cause)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.state != ReleasedTx {
		return
	}
	h.alarm.silence()
	leave := func() {
		if l.EndBy(h, Finish) {
			l.End(h, how.Cause)
		}
	}
	over := l.config.Clock.Alarm(l.config.Clock.Now()+l.config.TTL, leave)
	closed := context.AfterFunc(l.config.Calls.Background, leave)
	h.alarm.stop = func() { over(); closed() }
}

// End ends the context of a hold that was removed.
func (l *Ledger) End(h *Hold, cause error) {
	h.cancel(cause)
	h.alarm.silence()
	h.progress.Load().end()
}

// Drop removes a hold that is about to be released, and ends its context with a cause. It returns
// false if the hold has ended already.
func (l *Ledger) Drop(h *Hold, cause error) bool {
	held := l.EndBy(h, Unlock)
	if held {
		l.End(h, cause)
	}
	return held
}

// Lend removes a lease from the holds that the client relies on, and keeps its attempt for a
// transaction.
func (l *Ledger) Lend(h *Hold) {
	if l.EndBy(h, Lend) {
		l.End(h, fmt.Errorf("%w: it stands behind a transaction", driver.ErrNotHeld))
	}
}

// Lose ends holds without Unlock, and logs those that are lost.
func (l *Ledger) Lose(reason error, holds ...*Hold) {
	lost := l.revoke(reason, holds...)
	for _, h := range lost[:min(len(lost), maxLossLines)] {
		l.LogLoss(h)
	}
	if more := len(lost) - maxLossLines; more > 0 {
		l.config.Log.Warn("dblock: more locks lost", "session", lost[0].In.ID, "locks", more)
	}
}

// LoseSession ends the holds of a session that has ended. Later grants of that session are not
// entered. The rows of the holds may remain in the database: Close releases them.
func (l *Ledger) LoseSession(s *store.Session) {
	holds := slices.Collect(maps.Values(l.Of(s)))
	if len(holds) > 0 {
		s.Doubt()
	}
	l.Lose(context.Cause(s.Context()), holds...)
}

// LogLoss logs that a hold is lost.
func (l *Ledger) LogLoss(h *Hold) {
	l.config.Log.Warn("dblock: lock lost",
		"name", h.Name, "token", h.Mode.Load().Token, "because", context.Cause(h.ctx))
}

// Unusable returns the error of a call that has found a hold on which the client does not rely. If
// the client relies on it by now, a Guard has shown the rollback of an UnlockTx meanwhile.
func (l *Ledger) Unusable(h *Hold) error {
	if s := l.StateOf(h); s.claimed() || s == ReleasedTx {
		return ErrReleasedTx
	}
	<-h.ctx.Done() // ended by the goroutine that removed the hold
	return h.Over()
}
