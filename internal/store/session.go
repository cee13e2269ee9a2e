package store

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/wait"
)

// Session is a session of a client, in which it takes and releases locks.
type Session struct {
	*session.Session

	store    *Store
	hub      *wait.Hub // the waiters of the session
	cycles   *deadlock.Detector
	batch    *coalesce.Coalescer[protocol.Op, outcome] // of several names
	turns    *coalesce.Coalescer[protocol.Op, outcome] // of one name
	sessions *Sessions
}

// Over returns the reason why the session holds nothing any more, or nil.
func (s *Session) Over() error {
	if s.Alive() {
		return nil
	}
	return context.Cause(s.Context())
}

// Waiters returns the waiters of the session.
func (s *Session) Waiters() *wait.Hub { return s.hub }

// Cycles returns the search for deadlocks of the session.
func (s *Session) Cycles() *deadlock.Detector { return s.cycles }

// Answer is the result of a request: a grant, or its residue.
type Answer struct {
	Outcome  protocol.Outcome
	Ahead    int // that of protocol.Result
	Grant    protocol.Grant
	Asked    time.Duration   // by the client's clock, before the statement that granted was sent
	Left     Residue         // if the request failed
	Answered <-chan struct{} // closed when the statement is answered; nil: it is not in flight
}

// Take takes a name that is free. A request for a share goes with the requests and releases of the
// session's other goroutines for the same name, in the order in which they came; one that must not
// wait for a locked row goes with others of that kind. If together is true, a request for a whole
// name shares its statement with those for other names, where some are in flight already. Such a
// statement may leave out a name that is free.
func (s *Session) Take(ctx context.Context, r *protocol.Request, together bool) (Answer, error) {
	take := protocol.Take{Request: *r}
	switch {
	case s.inTurn(take, r.Units > 0):
		return answered(s.turn(ctx, take))
	case together:
		free, alone := s.batch.Alone(take)
		if !alone {
			return answered(beside(ctx, s.batch, take))
		}
		defer free()
	}
	return answer(s.store.Run(ctx, take))
}

// Join takes a name, or joins its queue: with a place of its own, or in that of the attempt that
// the request extends. Requests for shares go together as those of Take.
func (s *Session) Join(ctx context.Context, r *protocol.Request, extends string) (Answer, error) {
	join := protocol.Join{Request: *r, Extends: extends}
	if s.inTurn(join, r.Units > 0) {
		return answered(s.turn(ctx, join))
	}
	return answer(s.store.Run(ctx, join))
}

// Reenter takes over a lock of the same owner, which another session holds.
func (s *Session) Reenter(ctx context.Context, r *protocol.Request) (Answer, error) {
	return answer(s.store.Run(ctx, protocol.Reenter{Request: *r}))
}

// answer converts the result of Store.Run for one request.
func answer(results []protocol.Result, asked time.Duration, err error) (Answer, error) {
	r := results[0]
	return Answer{Outcome: r.Outcome, Ahead: r.Ahead, Grant: r.Grant, Asked: asked, Left: ResidueOf(err)}, err
}

// Taken reports whether the request has got the lock.
func (a Answer) Taken() bool { return a.Outcome == protocol.Done }

// Do runs a transition, and delivers its grants to the waiters of this client. The undoing of an
// attempt goes with the requests and releases of its name. MUST NOT be called for an attempt whose
// statement is in flight.
func (s *Session) Do(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	r, removes := op.(protocol.Removal)
	if removes && r.Cause == protocol.ByAttempt && !r.Guarded && s.inTurn(r, false) {
		o, err := s.turn(ctx, r)
		return o.Result, err
	}
	results, asked, err := s.store.Run(ctx, op)
	s.deliver(op.On(), results[0].Next, asked, err)
	return results[0], err
}

// Release releases a lock: if it has no waiters, together with the locks that the session's other
// goroutines release at that moment; if it is a share, together with their requests and releases of
// the same name. It returns false if the lock is not held.
func (s *Session) Release(ctx context.Context, r protocol.Removal) (left bool, err error) {
	switch {
	case r.Cause != protocol.ByHolder || r.Guarded:
	case s.inTurn(r, r.Shared):
		o, err := s.turn(ctx, r)
		return o.Done(), err
	case !r.Contended:
		free, alone := s.batch.Alone(r)
		if alone {
			defer free()
		} else if o, err := beside(ctx, s.batch, r); o.Done() || err != nil {
			return o.Done(), err
		}
		r.Contended = !alone // the batch did nothing: the lock may have waiters
	}
	results, asked, err := s.store.Run(ctx, r)
	s.deliver(r.Name, results[0].Next, asked, err)
	return results[0].Done(), err
}

// TakeOver takes a name from an expired holder; from none (the zero Holder) it hands the name on.
func (s *Session) TakeOver(ctx context.Context, name string, holder protocol.Holder) (protocol.Result, error) {
	taken, err := s.Do(ctx, protocol.TakeOver(s.ID, name, holder))
	if taken.Done() && holder.Grant.Token != 0 {
		s.sessions.keeper.Reclaimed(name, holder, s.sessions.because(holder.Session))
	}
	return taken, err
}

// SideConn is OnSideConn, with the bounds of any statement.
func (s *Session) SideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	within, done := s.store.call(ctx)
	return done(s.OnSideConn(within, do))
}

// deliver answers the waiters of this client to which a statement has granted the lock. If the
// answer was lost, the name is read.
func (s *Session) deliver(name string, next []protocol.Handoff, asked time.Duration, err error) {
	s.hub.Deliver(next, asked)
	if err != nil && ResidueOf(err) == Unsure {
		s.hub.Recheck(name)
	}
}

// backend is the engine as the hub of a session uses it: the session chooses the connection on
// which it listens, and sends the takeovers.
type backend struct {
	Engine
	in *Session
}

// Listen implements wait.Backend.
func (b backend) Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error {
	return b.in.Listen(ctx, ready, wake)
}

// Sweep is as of wait.Backend.
func (b backend) Sweep(ctx context.Context) (buried bool) { return b.in.sessions.Sweep(ctx) }

// Recount is as of wait.Backend.
func (b backend) Recount(ctx context.Context, name string) (protocol.Result, error) {
	return b.in.Do(ctx, protocol.Recount{Name: name})
}

// TakeOver is as of wait.Backend.
func (b backend) TakeOver(ctx context.Context, name string, holder protocol.Holder) (protocol.Result, error) {
	return b.in.TakeOver(ctx, name, holder)
}
