package driver

import "context"

// Queue is the waiters of names, and how they hear of their grants.
type Queue interface {
	// Enqueue joins the end of the queue of a name that has holders or waiters, with tickets from
	// the name's row, which it has locked. Several requests are all of one name and one session,
	// all for the whole name, and get their tickets in the order given, in one transaction. Where
	// the name has neither holder nor waiter, Enqueue may take the lock instead for the first
	// request (then the others have joined the queue behind it), or do nothing and return Gone. It
	// also returns Gone where the name has no row. After Gone the callers repeat Take. ErrCapacity
	// of permits where holders or waiters read the name, and the other way round.
	Enqueue(ctx context.Context, rs ...Request) (Grant, Outcome, error)

	// Leave gives up the places in a name's queue that attempts of a session have, members of a run
	// included, and hands on what fits then, as Vacate does, in one transaction. It does nothing
	// for the other attempts, which may have the lock.
	Leave(ctx context.Context, session, name string, attempts []string) (next []Handoff, err error)

	// Look reads the state of names as the session sees it, in no order. A name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// Listen listens for grants to the session until ctx ends or the connection fails. It calls
	// ready once, as soon as no later grant can be missed. It calls wake for each hint that a lock
	// was granted or taken away. ErrUnsupported where the engine can only be polled;
	// ErrCannotListen, which is ErrUnsupported too, where that is so with this driver.
	Listen(ctx context.Context, session string, ready func(), wake func(Hint)) error

	// WaitGraph lists the part of the wait-for graph that the attempts can reach: their own places
	// in queues; the holders of each name that has a place in the list; the places in queues of
	// each owner (session, host and thread) that holds such a name. Dead sessions are left out. It
	// is one statement, and so one snapshot.
	WaitGraph(ctx context.Context, attempts []string) ([]Wait, error)
}
