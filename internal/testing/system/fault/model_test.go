//go:build unix

package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// lockState is a lock in the model: its believed holders, and the highest token so far.
type lockState struct {
	holders []holder // in the order of their names; never changed in place
	token   int64
}

type holder struct {
	name  string
	token int64
	portion
}

// step is an operation of the model: a holder begins to hold a lock, holds it, holds it in another
// portion, or holds it no longer.
type step struct {
	name string
	what string
	holder
}

const (
	stepAcquire   = "acquires"
	stepReenter   = "reenters"
	stepDowngrade = "downgrades"
	stepUpgrade   = "upgrades"
	stepEnd       = "ends"
)

// lockModel is a lock, a lock of readers and writers, and a semaphore: an acquire needs that the
// others leave room for it, and a token above all before it. An upgrade needs the same, when the
// share itself is not counted. A hold ends when its context does, at some time between when it was
// last seen alive and when that was noticed.
//
// An acquire with an unknown outcome, because its process was killed, is left out. If it happened,
// no client believed in it, and the token and the room that it took only restrict the next one. A
// model in which it may or may not have happened accepts the same histories. The same holds for an
// upgrade. A downgrade with an unknown outcome happens at some time before the hold ends, if that
// was seen alive after it: a downgrade that did not happen would only leave others less room.
var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, o := range history {
			name := o.Input.(step).name
			byName[name] = append(byName[name], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(step)
		others := make([]holder, 0, len(s.holders)+1)
		var room []portion
		var mine holder
		for _, h := range s.holders {
			if h.name == in.holder.name {
				mine = h
				continue
			}
			others, room = append(others, h), append(room, h.portion)
		}
		here, token := mine.name != "", s.token
		switch in.what {
		case stepAcquire:
			here, token = !here && in.token > s.token && in.beside(room), in.token
		case stepUpgrade:
			here, token = here && in.token > s.token && in.beside(room), in.token
		case stepDowngrade:
			here = here && mine.portion == portion{}
		case stepReenter:
			return here && mine.token == in.token, s
		case stepEnd:
			return here, lockState{others, s.token}
		}
		at, _ := slices.BinarySearchFunc(others, in.holder, func(a, b holder) int {
			return cmp.Compare(a.name, b.name)
		})
		return here, lockState{slices.Insert(others, at, in.holder), token}
	},
	Equal: func(a, b any) bool {
		return a.(lockState).token == b.(lockState).token && slices.Equal(a.(lockState).holders, b.(lockState).holders)
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(step)
		return fmt.Sprintf("%s %s %v of %s with %d", in.holder.name, in.what, in.portion, in.name, in.token)
	},
}

// operations are the actors' holds as the model has them.
func operations(actors []*process) (all []porcupine.Operation) {
	for id, p := range actors {
		reheld := map[int][]event{}
		for _, e := range p.all() {
			if e.What == evReheld {
				reheld[e.Op] = append(reheld[e.Op], e)
			}
		}
		add := func(f *phase, what string, token int64, call, end time.Duration) {
			all = append(all, porcupine.Operation{
				ClientId: id, Call: int64(call), Return: int64(max(call, end)),
				Input: step{f.name, what, holder{fmt.Sprintf("%s/%d", f.by, f.op), token, f.portion}},
			})
		}
		for _, h := range p.holds() {
			for i, f := range h.phases {
				switch {
				case i == 0:
					add(f, stepAcquire, f.token, f.asked, f.from)
				case f.grant:
					add(f, stepUpgrade, f.token, f.asked, f.from)
				default:
					add(f, stepDowngrade, f.token, f.asked, min(f.from, h.until))
				}
			}
			for _, e := range reheld[h.op] {
				if e.At <= h.live {
					add(h.phases[0], stepReenter, e.Token, h.asked, e.At)
				}
			}
			if h.until != forever {
				add(h.last(), stepEnd, h.last().token, h.live, h.until)
			}
		}
	}
	return all
}

// impossible says which locks have a history that the model does not allow.
func impossible(actors []*process, limit time.Duration) (found []string) {
	all := operations(actors)
	for _, part := range lockModel.Partition(all) {
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		name := part[0].Input.(step).name
		switch porcupine.CheckOperationsTimeout(lockModel, part, limit) {
		case porcupine.Illegal:
			found = append(found, fmt.Sprintf("%s: %d operations are in no order that a lock allows", name, len(part)))
		case porcupine.Unknown:
			found = append(found, fmt.Sprintf("%s: no order of %d operations was found in %v", name, len(part), limit))
		}
	}
	return found
}
