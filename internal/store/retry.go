package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// Policy says which failures are retried, after which pauses, and for how long. Every policy
// retries transient failures, and an outage for a TTL.
type Policy struct {
	First, Longest time.Duration // the pause after a failure: it doubles from First to Longest
	Tries          int           // limits the tries; 0: any number
	Patience       time.Duration // from the first lost race or locked row to the last try; 0: no limit
	Limit          time.Duration // no try begins so long after the first; 0: no limit
	Waits          bool          // a try may wait for long: an outage counts from its first failure
	Outages        Outages       // which of them are repeated
	// Endless repeats every failure until the context ends. A refusal doubles the pause up to a
	// TTL, and ends the tries once the client is being closed.
	Endless bool
}

// Outages says which outages a policy repeats.
type Outages int

// EveryOutage retries all outages, AfterSession those of a client that has had a session, NoOutage
// none.
const (
	EveryOutage Outages = iota
	AfterSession
	NoOutage
)

// The policies.
var (
	// Patient is for calls that a lock depends on.
	Patient = Policy{First: 5 * time.Millisecond, Longest: 200 * time.Millisecond}
	// Waiting is for a Lock, which waits in a queue.
	Waiting = Policy{First: 5 * time.Millisecond, Longest: 200 * time.Millisecond, Waits: true, Outages: AfterSession}
	// Trying is for a TryLock. A row may be locked by a transaction of dblock's own, which is
	// short. A transaction that has it for longer than half a second is the application's.
	Trying = Policy{
		First: 5 * time.Millisecond, Longest: 200 * time.Millisecond, Patience: 500 * time.Millisecond,
		Outages: AfterSession,
	}
	// Quick is for calls that no lock depends on.
	Quick = Policy{First: 20 * time.Millisecond, Longest: 20 * time.Millisecond, Tries: 5}
	// Briefly is for rows that another transaction has locked for a moment.
	Briefly = Policy{First: 20 * time.Millisecond, Longest: 20 * time.Millisecond, Outages: NoOutage}
	// Undoing is for undoing when no caller waits any more.
	Undoing = Policy{First: 20 * time.Millisecond, Longest: 500 * time.Millisecond, Endless: true}
	// Behind is for releases behind a transaction of the application's, whose end is not notified.
	Behind = Policy{First: time.Millisecond, Longest: 250 * time.Millisecond, Endless: true}
)

// mostUnproven limits the tries in a row whose statement was answered and had no effect. A KILL
// QUERY does not meet so many. A trigger that swallows writes meets all of them.
const mostUnproven = 20

// Tries counts the tries of one call.
type Tries struct {
	store    *Store
	policy   Policy
	began    time.Duration
	failures int
	unproven int           // the failures in a row that are ErrUnproven
	last     time.Duration // the time of the last failure
	raced    bool          // a try has lost a race, or met a locked row
	racing   time.Duration // when the first of them had failed; later by the outages since then
	away     bool          // an outage goes on
	since    time.Duration // when the outage began: with a try, or with a failure, as Waits says
}

// Tries begins the first try of a call.
func (s *Store) Tries(p Policy) *Tries {
	now := s.config.Clock.Now()
	return &Tries{store: s, policy: p, began: now, away: !p.Waits, since: now}
}

// Again reports whether a call that failed shall be retried. It returns after the pause.
func (t *Tries) Again(ctx context.Context, err error) bool {
	s, p, now := t.store, t.policy, t.store.config.Clock.Now()
	t.failures++
	unproven := errors.Is(err, transaction.ErrUnproven)
	bounded := p.Patience > 0 && isRace(err) && !unproven
	switch {
	case !bounded:
		t.racing += now - t.last
	case !t.raced:
		t.raced, t.racing = true, now
	}
	t.last = now
	if t.unproven++; !unproven {
		t.unproven = 0
	}
	late, longest := t.outage(err, now), p.Longest
	switch transient := s.Transient(err) && t.unproven < mostUnproven; {
	case err == nil, ctx.Err() != nil, t.failures == p.Tries:
		return false
	case bounded && now-t.racing >= p.Patience:
		return false
	case p.Limit > 0 && now-t.began >= p.Limit:
		return false
	case s.Closing() && errors.Is(err, driver.ErrBusy) && now-t.began > contract.CleanupTimeout:
		return false // Close does not wait for the application's transactions
	case p.Endless && !transient:
		if s.Closing() {
			return false
		}
		longest = s.config.TTL
	case !p.Endless && (!transient || late):
		return false
	}
	pause := backoff.Pause(t.failures, p.First, longest)
	if bounded {
		pause = min(pause, t.racing+p.Patience-now) // the last try ends the patience
	}
	sleep(ctx, pause)
	return ctx.Err() == nil
}

// outage records a failure, and reports whether an outage has lasted for too long: a TTL, or less
// where the pool gave no connection for a TTL. Every answer ends the outage.
func (t *Tries) outage(err error, now time.Duration) (tooLong bool) {
	if !t.store.Outage(err) {
		t.away = false
		return false
	}
	if !t.away {
		t.away, t.since = true, now
	}
	never := t.policy.Outages == NoOutage || t.policy.Outages == AfterSession && !t.store.HadSession()
	return never || errors.Is(err, errExhausted) || now-t.since >= t.store.config.TTL
}

// Retry runs f until it succeeds, or until the policy allows no further try. If ctx has ended by
// then, the error is joined with the cause.
func (s *Store) Retry(ctx context.Context, p Policy, f func() error) error {
	for t := s.Tries(p); ; {
		err := f()
		if err == nil {
			return nil
		}
		if !t.Again(ctx, err) {
			if ctx.Err() != nil {
				return Ended(ctx, err)
			}
			return err
		}
	}
}

// LockWithin waits for a mutex until ctx ends. try is the mutex's TryLock.
func LockWithin(ctx context.Context, try func() bool) error {
	for !try() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		Pause(ctx, time.Millisecond)
	}
	return nil
}

// Pause waits for about d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) { sleep(ctx, d/2+rand.N(d)) }

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
