package protocol

import "slices"

// Op is a transition of one name, as a value: Take, Join, Reenter, Removal, Extend, Downgrade,
// Upgrade, Raise, Detach, Move, Ask, Show, EndRest, Announce, or Recount. After a lost race an
// engine may run an op again.
type Op interface {
	// On returns the name.
	On() string

	// By returns the session that asks, which is answered: a grant to it needs no notification. "":
	// no session asks.
	By() string

	// Run makes the transition. After an error the name is discarded, and nothing was done.
	Run(n *Name) (Result, error)
}

// Waits reports whether the statements of an op may wait for a row that another transaction has
// locked. A request says so itself (Request.Patient). All other ops may wait.
func Waits(op Op) bool {
	r, asks := op.(interface{ request() Request })
	return !asks || r.request().Patient
}

// Together returns ops as they run in one transaction. If there are several, each release is Idle.
func Together(ops []Op) []Op {
	if len(ops) == 1 {
		return ops
	}
	together := slices.Clone(ops)
	for i, op := range ops {
		if r, removes := op.(Removal); removes {
			together[i] = Idle{r}
		}
	}
	return together
}

// Idle is a release of a lock without waiters. Undone where the name has waiters, and for any other
// removal.
type Idle struct{ Removal }

// Run implements Op.
func (i Idle) Run(n *Name) (Result, error) {
	if n.Waiters > 0 || i.Cause != ByHolder {
		return Result{}, nil
	}
	return i.Removal.Run(n)
}

// Result is the result of a transition.
type Result struct {
	Outcome Outcome
	Grant   Grant     // of Take, Join, Reenter and Upgrade; of Raise its Token; of Extend its Lease
	Next    []Handoff // the grants to waiters, those to the asking session included
	Holders int       // of Ask: the holders that were notified
}

// Done reports whether the transition did all that its op asks for.
func (r Result) Done() bool { return r.Outcome == Done }

// Outcome says whether a transition was made.
type Outcome int

// The outcomes. The doc comment of each op names the cases of Undone.
const (
	Undone Outcome = iota // nothing was done
	Queued                // of Join: the attempt waits
	Done
)

// done returns the result of a transition: Done with its grants if did is true, else Undone.
func (n *Name) done(did bool, err error) (Result, error) {
	if err != nil || !did {
		return Result{}, err
	}
	return Result{Outcome: Done, Next: n.Handoffs}, nil
}

// On implements Op.
func (r Request) On() string { return r.Name }

// By implements Op.
func (r Request) By() string { return r.Session }

func (r Request) request() Request { return r }

// On implements Op.
func (h Held) On() string { return h.Name }

// By implements Op.
func (h Held) By() string { return h.Session }
