package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

var errGrantedAgain = errors.New("the database granted the name again")

// ErrDisowned: the database does not show a lock that the client relies on.
var ErrDisowned = errors.New("the database shows another holder, or none")

// How a claim ends:
//
//	LoseSession, a fixed lease, Lose  -> revoke -> cut -> End
//	Hold, of a later grant            -> cut -> End
//	Drop (Unlock), Lend (LockTx)      -> endBy -> End
//
// endBy and revoke move the claim, so that one of them ends it. cut leaves the context
// of a lock that UnlockTx has released open for a TTL. End ends the context.

// ErrReleasedTx: UnlockTx was called, and only Guard shows whether its transaction was rolled back.
var ErrReleasedTx = fmt.Errorf("%w: UnlockTx was called: after a rollback, call Guard first", driver.ErrNotHeld)

// maxLossLines limits the locks that the log names when several are lost together.
const maxLossLines = 10

// Ending is how a claim ends without Unlock.
type Ending struct {
	event claimEvent
	Cause error // with which its context ends
}

// Released reports whether UnlockTx has released the lock, which is then not lost.
func (e Ending) Released() bool { return e.event == commit }

// ending returns how a claim ends that the database does not have any more: lost, unless an
// UnlockTx has succeeded. A rollback with a takeover after it cannot be told from a commit. A lock
// with a fixed lease stays known while its session lives: a transaction that it guards may still be
// open, and only a takeover checks the guard. MUST be called with mu locked.
func (c *Claim) ending(reason error) Ending {
	alive := c.Grant.In.Over() == nil
	if c.state == Pledged && c.pledge.kept && alive && !errors.Is(reason, contract.ErrLeaseOver) {
		return Ending{commit, fmt.Errorf("%w: released by UnlockTx", driver.ErrNotHeld)}
	}
	if c.Fixed() && alive {
		return Ending{expire, c.lost(reason)}
	}
	return Ending{lose, c.lost(reason)}
}

// revoke ends claims without Unlock, and returns those that are lost. Their contexts end one
// directly after the other: nothing else may stand between a deadline and the last context that
// must end at it.
func (l *Ledger) revoke(reason error, claims ...*Claim) (lost []*Claim) {
	hows := make(map[*Claim]Ending, len(claims))
	for _, c := range claims {
		l.mu.Lock()
		how := c.ending(reason)
		stands := c.can(how.event)
		if stands {
			l.happen(c, how.event)
		}
		l.mu.Unlock()
		if stands {
			l.cut(c, how)
			hows[c] = how
		}
	}
	for c, how := range hows {
		l.follow(c, how)
		if !how.Released() {
			lost = append(lost, c)
		}
	}
	return lost
}

// follow follows up the end of a claim that was not unlocked. The claims behind it request the lock
// again, unless the database may have them in the queue.
func (l *Ledger) follow(c *Claim, how Ending) {
	l.config.Client.Ended(c, how)
	if l.config.Store.Begin() != nil { // Close ends the waiting
		return
	}
	defer l.config.Store.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(c.Grant, true)
}

// cut ends the context of a claim that was revoked. The context of a lock that UnlockTx has
// released stays open for a TTL, or until Unlock or Close: the Commit that released it may be
// reading its answer with that context.
func (l *Ledger) cut(c *Claim, how Ending) {
	if !how.Released() {
		l.End(c, how.Cause)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != Released {
		return
	}
	c.alarm.silence()
	leave := func() {
		if l.endBy(c, finish) {
			l.End(c, how.Cause)
		}
	}
	over := l.config.Clock.Alarm(l.config.Clock.Now()+l.config.TTL, leave)
	closed := context.AfterFunc(l.config.Store.Background, leave)
	c.alarm.stop = func() { over(); closed() }
}

// End ends the context of a claim.
func (l *Ledger) End(c *Claim, cause error) {
	c.cancel(cause)
	c.alarm.silence()
	c.progress.Load().end()
}

// Drop ends a claim whose lock is about to be released, and its context with a cause. It returns
// false if the claim has ended already.
func (l *Ledger) Drop(c *Claim, cause error) bool {
	ended := l.Release(c)
	if ended {
		l.End(c, cause)
	}
	return ended
}

// Release is Drop without the end of the context, which MUST follow.
func (l *Ledger) Release(c *Claim) bool {
	return l.endBy(c, unlock) || c.outlives.Load() && l.endBy(c, finish)
}

// Quit is Drop for the holder itself. It returns the reason why the lock has ended without Unlock,
// or nil.
func (l *Ledger) Quit(c *Claim, cause error) error {
	if l.Drop(c, cause) {
		return nil
	}
	<-c.ctx.Done() // ended by the goroutine that ended the claim
	return c.Revoked()
}

// Lend ends the claim of a lease, and keeps its grant for a transaction.
func (l *Ledger) Lend(c *Claim) {
	if l.endBy(c, lend) {
		l.End(c, fmt.Errorf("%w: it stands behind a transaction", driver.ErrNotHeld))
	}
}

// Absent finishes the grant of a claim that was released, and that the database does not have. The
// lock is lost unless an UnlockTx has succeeded, the answer to an earlier release was lost, or the
// client was releasing it in the background.
func (l *Ledger) Absent(c *Claim) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := c.Grant
	lost = g.state == Leaving && g.undone == nil && !c.pledge.kept
	l.finish(g, true)
	return lost
}

// Lose ends claims without Unlock, and logs those that are lost. If the database does not show them
// any more, the reason is that of Break where the history tells it in time (Client.Breakers).
func (l *Ledger) Lose(ctx context.Context, reason error, claims ...*Claim) {
	var lost []*Claim
	if errors.Is(reason, ErrDisowned) || errors.Is(reason, driver.ErrNotHeld) {
		for c, broken := range l.config.Client.Breakers(ctx, l.standing(reason, claims)) {
			lost = append(lost, l.revoke(broken, c)...)
		}
	}
	lost = append(lost, l.revoke(reason, claims...)...)
	for _, c := range lost[:min(len(lost), maxLossLines)] {
		l.LogLoss(c)
	}
	if more := len(lost) - maxLossLines; more > 0 {
		l.config.Log.Warn("dblock: more locks lost", "session", lost[0].Grant.In.ID, "locks", more)
	}
}

// standing returns the claims that have not ended.
func (l *Ledger) standing(reason error, claims []*Claim) []*Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(claims), func(c *Claim) bool { return !c.can(c.ending(reason).event) })
}

// LoseSession ends the claims of a session that has ended. Later grants of that session are not
// held. Their rows may remain in the database: Close releases them.
func (l *Ledger) LoseSession(s *store.Session) {
	claims := slices.Collect(maps.Values(l.Of(s)))
	if len(claims) > 0 {
		s.NoteUnknown()
	}
	l.Lose(s.Context(), context.Cause(s.Context()), claims...)
}

// LostFor returns the error of a call that has found a lock lost, after Lose.
func (c *Claim) LostFor(reason error) error { return cmp.Or(c.Over(), contract.Lost(reason)) }

// LogLoss logs that a lock is lost.
func (l *Ledger) LogLoss(c *Claim) {
	l.config.Log.Warn("dblock: lock lost", "name", c.Grant.Name, "token", c.Token(), "because", context.Cause(c.ctx))
}

// Unusable returns the error of a call that has found a claim that is not held. If it is held by
// now, a Guard has shown the rollback of an UnlockTx meanwhile.
func (l *Ledger) Unusable(c *Claim) error {
	l.mu.Lock()
	released := c.stands() || c.state == Released && c.outlives.Load()
	l.mu.Unlock()
	if released {
		return ErrReleasedTx
	}
	<-c.ctx.Done() // ended by the goroutine that ended the claim
	return c.Over()
}
