package dblockweb

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/dblock-go/dblock/inspect"
)

// shownNames bounds the names with waiters that the overview shows, and the other names.
const shownNames = 100

type overview struct {
	Prefix, Host, Older, After string
	Contended, Others          []inspect.Info
	Full                       bool // there are more names with waiters
	// Next is the name after which the others continue; "": there are no more.
	Next string
}

// loadOverview reads the first names with waiters, and then a page of all names. A later page has
// only all names, including those with waiters: it does not know which of them the first page
// showed.
func loadOverview(ctx context.Context, q query) (any, error) {
	o := overview{Prefix: q.get("prefix"), Host: q.get("host"), Older: q.get("older"), After: q.get("after")}
	f := inspect.Filter{Prefix: o.Prefix, Host: o.Host, Limit: shownNames + 1}
	if o.Older != "" {
		var err error
		if f.Older, err = time.ParseDuration(o.Older); err != nil || f.Older < 0 {
			return nil, badRequest("Held for at least: want a duration, such as 90s, 10m or 2h30m.")
		}
	}
	above := map[string]bool{}
	if o.After == "" {
		contended := f
		contended.Contended = true
		var err error
		if o.Contended, o.Full, err = firstNames(q.of.List(ctx, contended)); err != nil {
			return nil, err
		}
		for _, info := range o.Contended {
			above[info.Name] = true
		}
	}
	f.After = o.After
	others, more, err := firstNames(q.of.List(ctx, f))
	if err != nil {
		return nil, err
	}
	if more {
		o.Next = others[len(others)-1].Name
	}
	o.Others = slices.DeleteFunc(others, func(i inspect.Info) bool { return above[i.Name] })
	slices.SortStableFunc(o.Contended, func(a, b inspect.Info) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), waitsSince(a).Compare(waitsSince(b)))
	})
	slices.SortStableFunc(o.Others, func(a, b inspect.Info) int { return heldSince(a).Compare(heldSince(b)) })
	return o, nil
}

// firstNames reads the first names, and whether there are more: how many costs a read of all.
func firstNames(names iter.Seq2[inspect.Info, error]) (first []inspect.Info, more bool, err error) {
	all, err := take(names, shownNames+1)
	return all[:min(len(all), shownNames)], len(all) > shownNames, err
}

// queue is that of a name, in which candidates of an election wait beside others.
type queue struct{ Waiters, Standbys int }

// queueOf counts a queue by the waiters that were read. Those behind them are as the last one.
func queueOf(i inspect.Info) queue {
	standbys := 0
	for _, w := range i.Waiters {
		if w.Candidate {
			standbys++
		}
	}
	if n := len(i.Waiters); n > 0 && i.Waiters[n-1].Candidate {
		standbys += i.Queued - n
	}
	return queue{i.Queued - standbys, standbys}
}

// awaited reports whether a name of a table has waiters.
func awaited(list []inspect.Info) bool {
	return slices.ContainsFunc(list, func(i inspect.Info) bool { return queueOf(i).Waiters > 0 })
}

// heldSince returns the time since which the name has its oldest holder.
func heldSince(i inspect.Info) time.Time { return oldest(i.Holders) }

// waitsSince returns the time since which the oldest waiter that was read waits.
func waitsSince(i inspect.Info) time.Time { return oldest(i.Waiters) }

func oldest(participants []inspect.Participant) (since time.Time) {
	for _, p := range participants {
		if since.IsZero() || p.Since.Before(since) {
			since = p.Since
		}
	}
	return since
}
