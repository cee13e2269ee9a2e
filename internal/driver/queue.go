package driver

import "context"

// Queue is the waiters of names, and how they hear of their grants.
type Queue interface {
	// Look reads the state of names as the session sees it, in no order. A name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// Listen listens for grants to the session until ctx ends or the connection fails. It calls
	// ready once, as soon as no later grant can be missed. It calls wake for each hint that a lock
	// was granted or taken away. A connection of Upkeep for the session MUST be open meanwhile.
	// ErrUnsupported where the engine can only be polled; ErrCannotListen, which is ErrUnsupported
	// too, where that is so with this driver.
	Listen(ctx context.Context, session string, ready func(), wake func(Hint)) error

	// WaitGraph lists the part of the wait-for graph that the attempts can reach: their own places
	// in queues; the holders of each name that has a place in the list; the places in queues of
	// each owner (session, host and thread) that holds such a name. Dead sessions are left out. It
	// is one statement, and so one snapshot.
	WaitGraph(ctx context.Context, attempts []string) ([]Wait, error)
}
