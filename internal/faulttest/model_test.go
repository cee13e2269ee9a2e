package faulttest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// lockState is a lock as the model has it: who believes in it, and the highest token so far.
type lockState struct {
	holder string
	token  int64
}

// step is an operation of the model: somebody begins to hold a lock, holds it, or holds it no longer.
type step struct {
	name   string
	what   string
	holder string
	token  int64
}

const (
	stepAcquire = "acquires"
	stepReenter = "reenters"
	stepEnd     = "ends"
)

// lockModel: an acquire needs that nobody holds the lock, and a token above all before it. A hold ends when its context
// does, at some time between when it was last seen alive and when that was noticed.
//
// An acquire whose outcome is not known, because its process was killed, is left out: if it happened nobody came to
// believe in it, and that it took a token leaves the next one only less room. A model in which it may or may not have
// happened accepts the same histories.
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
		switch in.what {
		case stepAcquire:
			return s.holder == "" && in.token > s.token, lockState{in.holder, in.token}
		case stepReenter:
			return s.holder == in.holder && s.token == in.token, s
		default:
			return s.holder == in.holder, lockState{"", s.token}
		}
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(step)
		return fmt.Sprintf("%s %s %s with %d", in.holder, in.what, in.name, in.token)
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
		add := func(h *hold, what string, token int64, call, end time.Duration) {
			all = append(all, porcupine.Operation{
				ClientId: id, Call: int64(call), Return: int64(max(call, end)),
				Input: step{h.name, what, fmt.Sprintf("%s/%d", h.by, h.op), token},
			})
		}
		for _, h := range p.holds() {
			add(h, stepAcquire, h.token, h.asked, h.from)
			for _, e := range reheld[h.op] {
				if e.At <= h.live {
					add(h, stepReenter, e.Token, h.asked, e.At)
				}
			}
			if h.until != forever {
				add(h, stepEnd, h.token, h.live, h.until)
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
