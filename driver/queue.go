package driver

import "context"

// Queue is the waiters of names, and how they hear of their grants.
type Queue interface {
	// Enqueue joins the end of the queue of a name that has holders or waiters, with a ticket from
	// the name's row, which it has locked. Where the name has neither, Enqueue may take the lock
	// instead, or do nothing and return Gone. It also returns Gone where the name has no row. After
	// Gone the caller repeats Take. ErrCapacity where the holders or waiters of the name have
	// another capacity.
	Enqueue(ctx context.Context, r Request) (Grant, Outcome, error)

	// Leave gives up the places in a name's queue that attempts of a session have, and hands on
	// what fits then, as Vacate does, in one transaction. It does nothing for the other attempts,
	// which may have the lock.
	Leave(ctx context.Context, session, name string, attempts []string) (next []Handoff, err error)

	// Look reads the state of names as the session sees it, in no order. A name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// Listen listens for grants to the session until ctx ends or the connection fails. It calls
	// ready once, as soon as no later grant can be missed. It calls wake for each hint that a lock
	// was granted or taken away. ErrUnsupported where the engine can only be polled.
	Listen(ctx context.Context, session string, ready func(), wake func(Hint)) error

	// WaitGraph lists the part of the wait-for graph that the attempts can reach: their own places
	// in queues; the holders of each name that has a place in the list; the places in queues of
	// each owner (session, host and thread) that holds such a name. Dead sessions are left out. It
	// is one statement, and so one snapshot.
	WaitGraph(ctx context.Context, attempts []string) ([]Wait, error)
}
