package driver

import "context"

// Queue is the waiters of names. Upkeep.Listen hears of their grants.
type Queue interface {
	// Look reads the state of names as the session sees it, in no order. A name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// WaitGraph lists the part of the wait-for graph that the attempts can reach: their own places
	// in queues; the holders of each name that has a place in the list; the places in queues of
	// each owner (session, host and thread) that holds such a name. Dead sessions are left out. It
	// is one statement, and so one snapshot.
	WaitGraph(ctx context.Context, attempts []string) ([]Wait, error)
}
