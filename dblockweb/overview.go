package dblockweb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/inspect"
)

// shownNames bounds the names with waiters that the overview shows, and the other names.
const shownNames = 100

type overview struct {
	Prefix, Host, Older, After string
	Contended, Others          []inspect.Info
	Full                       bool // there may be more names with waiters
	// Next is the name after which the others continue; "": there are no more.
	Next string
}

// loadOverview reads the first names with waiters, and then a page of all names. A later page has
// only all names, including those with waiters: it does not know which of them the first page
// showed.
func loadOverview(ctx context.Context, q query) (any, error) {
	o := overview{Prefix: q.get("prefix"), Host: q.get("host"), Older: q.get("older"), After: q.get("after")}
	f := inspect.Filter{Prefix: o.Prefix, Host: o.Host, Limit: shownNames}
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
		if o.Contended, err = take(q.of.List(ctx, contended), shownNames); err != nil {
			return nil, err
		}
		o.Full = len(o.Contended) == shownNames
		for _, info := range o.Contended {
			above[info.Name] = true
		}
	}
	f.After = o.After
	others, err := take(q.of.List(ctx, f), shownNames)
	if err != nil {
		return nil, err
	}
	if len(others) == shownNames {
		o.Next = others[len(others)-1].Name
	}
	o.Others = slices.DeleteFunc(others, func(i inspect.Info) bool { return above[i.Name] })
	slices.SortStableFunc(o.Contended, func(a, b inspect.Info) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), waitsSince(a).Compare(waitsSince(b)))
	})
	slices.SortStableFunc(o.Others, func(a, b inspect.Info) int { return heldSince(a).Compare(heldSince(b)) })
	return o, nil
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
