package dblockweb

import (
	"cmp"
	"context"
	"slices"

	"github.com/dblock-go/dblock/inspect"
)

// Kinds of events that package election writes.
const (
	elected  = "elected"
	resigned = "resigned"
)

const (
	readTerms      = 500 // events
	shownElections = 50
	shownTerms     = 5 // of each election
)

type elections struct {
	List []election
	Full bool // there may be others, whose last term began before the events read
}

type election struct {
	Name       string
	Info       inspect.Info
	Leader     *inspect.Event // of the present term; nil: no leader
	Candidates int
	Terms      []inspect.Event // the latest first
}

// loadElections finds elections by the latest events of terms.
func loadElections(ctx context.Context, q query) (any, error) {
	terms, err := take(q.of.Events(ctx, inspect.EventFilter{Kinds: []string{elected, resigned}, Newest: true,
		Limit: readTerms}), readTerms)
	if err != nil {
		return nil, err
	}
	e := elections{Full: len(terms) == readTerms}
	at := map[string]int{}
	for _, term := range terms {
		i, known := at[term.Name]
		if !known {
			if len(e.List) == shownElections {
				e.Full = true
				continue
			}
			i, at[term.Name] = len(e.List), len(e.List)
			e.List = append(e.List, election{Name: term.Name})
		}
		e.List[i].Terms = append(e.List[i].Terms, term)
	}
	for i := range e.List {
		one := &e.List[i]
		if one.Info, err = firstPlaces(ctx, q.of, one.Name); err != nil {
			return nil, err
		}
		one.Candidates = one.Info.Queued
		for _, holder := range one.Info.Holders {
			j := slices.IndexFunc(one.Terms, func(t inspect.Event) bool {
				return t.Kind == elected && t.Token == holder.Token
			})
			if j >= 0 {
				one.Leader = &one.Terms[j]
			}
		}
		one.Terms = one.Terms[:min(len(one.Terms), shownTerms)]
	}
	slices.SortFunc(e.List, func(a, b election) int { return cmp.Compare(a.Name, b.Name) })
	return e, nil
}

// firstPlaces reads a name as Lock does, with only the first places of its queue. A name is the
// first of those that begin with it: if List begins with another name, this one is idle.
func firstPlaces(ctx context.Context, of Source, name string) (inspect.Info, error) {
	infos, err := take(of.List(ctx, inspect.Filter{Prefix: name, Limit: 1}), 1)
	if err != nil || len(infos) == 0 || infos[0].Name != name {
		return inspect.Info{Name: name}, err
	}
	return infos[0], nil
}
