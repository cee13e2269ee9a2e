package protocol

import "slices"

// Op is a transition of one name, as a value: Take, Join, Reenter, Removal, Extend, Downgrade,
// Upgrade, Raise, Detach, Move, Ask, Show, EndRest, Announce, or Recount; or a Sequence of them.
// After a lost race an engine may run an op again.
type Op interface {
	// On returns the name.
	On() string

	// By returns the session that asks, which is answered: a grant to it needs no notification. "":
	// no session asks.
	By() string

	// Apply makes the transition. After an error the name is discarded, and nothing was done.
	Apply(n *Name) (Result, error)
}

// Waits reports whether the statements of an op may wait for a row that another transaction has
// locked. A request says so itself (Request.Patient). All other ops may wait.
func Waits(op Op) bool {
	r, says := op.(interface{ patient() bool })
	return !says || r.patient()
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

// Apply implements Op.
func (i Idle) Apply(n *Name) (Result, error) {
	if n.Waiters > 0 || i.Cause != ByHolder {
		return Result{}, nil
	}
	return i.Removal.Apply(n)
}

// Result is the result of a transition.
type Result struct {
	Outcome Outcome
	Grant   Grant     // of Take, Join, Reenter and Upgrade; of Raise its Token; of Extend its Lease
	Ahead   int       // of Join: the members before those of the request, in a place that it extends; 0: it has its own
	Next    []Handoff // the grants to waiters, those to the asking session included
	Holders int       // of Ask: the holders that were notified
	Each    []Result  // of a Sequence: those of its ops
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
	return Result{Outcome: Done, Next: n.Handoffs[n.handed:]}, nil
}

// On implements Op.
func (r Request) On() string { return r.Name }

// By implements Op.
func (r Request) By() string { return r.Session }

func (r Request) patient() bool { return r.Patient }

// On implements Op.
func (h Held) On() string { return h.Name }

// By implements Op.
func (h Held) By() string { return h.Session }
