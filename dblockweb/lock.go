package dblockweb

import (
	"context"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/contract"
)

const (
	shownWaiters = 100 // in the table; the picture has fewer
	shownHistory = 50
	shownChain   = 100
)

type lock struct {
	inspect.Info
	Shown   int      // the places of the queue that are shown: the first ones
	First   []placed // of them the waiters
	Standby []placed // of them the candidates of an election, which wait for as long as another leads
	Picture picture
	Chain   waiting
	Job     string // the job whose lock it is; "": none
	Events  []inspect.Event
	Full    bool // there may be more events
}

// placed is a participant with its place in the queue, from 1.
type placed struct {
	Place int
	inspect.Participant
}

func loadLock(ctx context.Context, q query) (any, error) {
	name := q.get("name")
	infos, err := q.of.Why(ctx, name)
	if err != nil {
		return nil, err
	}
	l := lock{Info: infos[0], Picture: pictureOf(infos[0]), Chain: chainOf(infos)}
	l.Shown = min(len(l.Waiters), shownWaiters)
	for n, w := range l.Waiters[:l.Shown] {
		of := &l.First
		if w.Candidate {
			of = &l.Standby
		}
		*of = append(*of, placed{n + 1, w})
	}
	if job, ok := strings.CutPrefix(name, contract.JobPrefix); ok {
		l.Job = job
	}
	l.Events, err = take(q.of.Events(ctx, inspect.EventFilter{Name: name, Newest: true, Limit: shownHistory}),
		shownHistory)
	l.Full = len(l.Events) == shownHistory
	return l, err
}

// waiting is a name in the chain of waiting, with its holders.
type waiting struct {
	inspect.Info
	By    []blocker
	Cycle bool // it stands further up in its branch: the names in between wait for each other
	Above bool // it stands elsewhere in the chain, with the names that its holders wait for
	Cut   bool // the chain has too many names: those that its holders wait for are left out
}

// blocker is a holder, and the names that it waits for.
type blocker struct {
	inspect.Participant
	For []waiting
}

// Waits reports whether a holder waits for a name.
func (w waiting) Waits() bool {
	return slices.ContainsFunc(w.By, func(b blocker) bool { return len(b.For) > 0 })
}

// HasCycle reports whether the chain leads back into itself.
func (w waiting) HasCycle() bool {
	return w.Cycle || slices.ContainsFunc(w.By, func(b blocker) bool {
		return slices.ContainsFunc(b.For, waiting.HasCycle)
	})
}

// chainOf makes a tree of the result of Why.
func chainOf(infos []inspect.Info) waiting {
	shown := map[string]bool{}
	var descend func(info inspect.Info, path []string) waiting
	descend = func(info inspect.Info, path []string) waiting {
		w := waiting{Info: info, Cycle: slices.Contains(path, info.Name)}
		if w.Cycle || shown[info.Name] || len(shown) >= shownChain {
			w.Above = !w.Cycle && shown[info.Name]
			w.Cut = !w.Cycle && !w.Above
			return w
		}
		shown[info.Name] = true
		path = append(slices.Clone(path), info.Name)
		for _, holder := range info.Holders {
			b := blocker{Participant: holder}
			for _, next := range infos {
				if next.AwaitedBy(holder) {
					b.For = append(b.For, descend(next, path))
				}
			}
			w.By = append(w.By, b)
		}
		return w
	}
	return descend(infos[0], nil)
}
