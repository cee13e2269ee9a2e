package driver

import (
	"context"
	"time"
)

// Locks are the transitions of a lock.
//
// A run is a grant of a name to several waiters of one session at once, which the session passes
// the lock on to in its memory, one after the other. The row shows the first of them, and the
// tokens of the run (first_token, last_token; both are the holder's own token where there is no
// run). Every statement knows a holder by its session and last_token, so that the whole run is
// released, taken over and broken as one lock with the last token of the run. The highest token
// ever reserved for the name (token) never falls.
type Locks interface {
	// Take takes the lock if it has room for the request, no waiters, and no cool-down (MinHold)
	// that goes on. It is one statement and one commit, after those that make a missing row of the
	// name. It also returns false for permits of a name that is read, and the other way round.
	Take(ctx context.Context, r Request) (Grant, bool, error)

	// TakeAll takes locks in one transaction, in the order given, which is that of their names, up
	// to the first that Take would refuse. It returns the grants. It may stop earlier, to keep the
	// transaction short.
	TakeAll(ctx context.Context, rs []Request) ([]Grant, error)

	// Reenter takes the lock over from its present holder, in any session, if the holder's host and
	// thread are those of the request, and gives it a new token. It returns false where they are
	// not, and for a share. ErrBusy where a transaction that guards the lock is open: then no new
	// one begins for two seconds.
	Reenter(ctx context.Context, r Request) (Grant, bool, error)

	// SetHolds records how many times the holder has entered the lock. ErrNotHeld.
	SetHolds(ctx context.Context, h Held, holds int) error

	// Extend moves the end of a fixed lease to d from now, unless it is later already, and returns
	// what is left of it then. ErrNotHeld, also where the lease is over or there is none. It is
	// safe to repeat.
	Extend(ctx context.Context, h Held, d time.Duration) (left time.Duration, err error)

	// Downgrade turns the whole name into one unit of Readers, with the same attempt and token, and
	// grants what fits then as Vacate does, in one transaction. It succeeds if the lock is such a
	// share already. ErrNotHeld. ErrCapacity where waiters want permits.
	Downgrade(ctx context.Context, h Held) ([]Handoff, error)

	// Upgrade turns the share of an attempt into the whole name, with a new token, before all
	// waiters. It returns false if there is another share. It succeeds if the attempt holds the
	// whole name already. ErrNotHeld.
	Upgrade(ctx context.Context, h Held, attempt string) (Grant, bool, error)

	// Vacate takes something off a name, as the Vacancy says, and grants the name to the live
	// waiters in the order of their tickets, each with a token of its own, stopping at the first
	// that does not fit. It does so in one transaction, and returns the grants, and whether there
	// was something to take off. ErrBusy, and nothing was done, where a transaction guards the hold
	// that ByTime or ByForce would take.
	//
	// Where the first waiter gets the whole name and is Passable, the waiters right behind it that
	// are Passable and of the same session are granted with it as one run, of at most MaxRun. Their
	// places stay in the queue, marked with their tokens, until the run ends: what releases the run
	// deletes them, and what takes it over (ByTime, ByForce) makes them wait again. ByAttempt takes
	// one member out of a run: a member's place is deleted, and where the attempt is the row's own
	// the row shows the next member from then on. With the last of them the name is vacated.
	Vacate(ctx context.Context, v Vacancy) (next []Handoff, left bool, err error)

	// Settle ends a run: its member with this token becomes a plain holder of the name, in the row
	// too, with its own attempt, host, thread and token. The places of the members before it are
	// deleted, and those of the members after it wait again where they stand; with singly they are
	// never granted as part of a run again. It succeeds if the lock is held so already. It grants
	// nothing. ErrNotHeld where the session has no run with such a member.
	Settle(ctx context.Context, h Held, singly bool) error

	// Batch takes and releases locks for many callers in one transaction. It takes each name that
	// Take would take, and releases each lock that has no waiters. It does nothing for the others:
	// a row that is locked, a name that is held, a lock that is not held. It never waits for a row
	// that it finds locked, and may leave out a name that is new. All requests are for whole names.
	// A name is given once, except with several shares to release. The results have the order of
	// the arguments; a Grant with token 0 was not taken.
	Batch(ctx context.Context, takes []Request, releases []Held) (grants []Grant, released []bool, err error)
}

// Cause is why something leaves a name.
type Cause int

const (
	ByHolder  Cause = iota // its holder releases it, known by its token
	ByAttempt              // its attempt is undone, whatever it has: a place in the queue, or the lock
	ByTime                 // its session is dead or over its time, or its fixed lease is over
	ByForce                // an operator takes it away
	Nothing                // nothing leaves: the name is ready to be handed on (State.Ready)
)

// Vacancy is something that a name is about to lose: the lock, a share of it, or a place in its
// queue. Release, Undo, TakeOver and Break make one.
type Vacancy struct {
	Cause     Cause
	Name      string
	Session   string // that has it
	Attempt   string
	Token     int64  // of a lock; 0: a place in the queue, or, ByAttempt, whatever there is
	Shared    bool   // ByHolder: it is a share
	Contended bool   // ByHolder: others may wait; false: the single statement may do that suffices without waiters
	LeaseOver bool   // ByTime: its fixed lease is over, so that its session may be alive
	Self      string // the session that asks: a grant to it needs no notification
	Event     Event  // ByForce: recorded in the same transaction
}

// Release is the vacancy of a lock that its holder releases.
func Release(h Held, contended bool) Vacancy {
	return Vacancy{Cause: ByHolder, Name: h.Name, Session: h.Session, Token: h.Token, Shared: h.Shared, Contended: contended, Self: h.Session}
}

// Undo is the vacancy of an attempt that is given up, whatever its outcome. An attempt without a
// trace is no error.
func Undo(session, name, attempt string) Vacancy {
	return Vacancy{Cause: ByAttempt, Name: name, Session: session, Attempt: attempt, Self: session}
}

// TakeOver is the vacancy of an expired holder, or of an expired place in the queue (State.Head),
// as a State shows it. Vacate expires the session first where that is due. Where the holder is
// another by now, or alive, nothing leaves. With the zero Holder nothing leaves, and the name is
// handed on.
func TakeOver(self, name string, h Holder) Vacancy {
	v := Vacancy{Cause: ByTime, Name: name, Session: h.Session, Attempt: h.Attempt, Token: h.Grant.Token, LeaseOver: h.Grant.Lease < 0, Self: self}
	if h.Session == "" {
		v.Cause = Nothing
	}
	return v
}

// Break is the vacancy of a holder that lives. The old holder is notified. Where a transaction
// guards its hold, no new one begins for two seconds.
func Break(self, name string, h Holder, e Event) Vacancy {
	return Vacancy{Cause: ByForce, Name: name, Session: h.Session, Attempt: h.Attempt, Token: h.Grant.Token, Self: self, Event: e}
}

// Held is the lock that leaves.
func (v Vacancy) Held() Held { return Held{v.Name, v.Session, v.Token, v.Shared} }
