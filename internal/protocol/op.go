package protocol

import "slices"

// Op is a transition of one name, as a value: Take, Join, Reenter, Removal, Extend, Downgrade,
// Upgrade, Raise, Detach, Move, Ask, EndRest, Announce, or Recount. An engine may run an op again
// where a race was lost.
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
// locked. A request says so itself (Request.Wait). All other ops may wait.
func Waits(op Op) bool {
	r, asks := op.(interface{ request() Request })
	return !asks || r.request().Wait
}

// Together returns ops as they run in one transaction. Where there are several, each release is
// Idle.
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

// Idle is a release. Undone where the name has waiters, and of any other removal.
type Idle struct{ Removal }

// Run is as of Op.
func (i Idle) Run(n *Name) (Result, error) {
	if n.Waiters > 0 || i.Cause != ByHolder {
		return Result{}, nil
	}
	return i.Removal.Run(n)
}

// Result is what a transition did.
type Result struct {
	Outcome Outcome
	Grant   Grant     // of Take, Join, Reenter and Upgrade; of Raise its Token; of Extend its Lease
	Next    []Handoff // the grants to waiters, those to the session that asks too
	Holders int       // of Ask: the holders that were told
}

// Done reports whether the transition did all that was asked.
func (r Result) Done() bool { return r.Outcome == Done }

// Outcome is what became of an op.
type Outcome int

// The outcomes. The doc comment of each op says when nothing was done.
const (
	Undone Outcome = iota // nothing was done
	Queued                // of Join: the attempt waits
	Done
)

// done is the result of a transition that did something, if did says so.
func (n *Name) done(did bool, err error) (Result, error) {
	if err != nil || !did {
		return Result{}, err
	}
	return Result{Outcome: Done, Next: n.Handoffs}, nil
}

// On is as of Op.
func (r Request) On() string { return r.Name }

// By is as of Op.
func (r Request) By() string { return r.Session }

func (r Request) request() Request { return r }

// On is as of Op.
func (h Held) On() string { return h.Name }

// By is as of Op.
func (h Held) By() string { return h.Session }
