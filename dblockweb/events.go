package dblockweb

import (
	"context"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/inspect"
)

const shownEvents = 100

type events struct {
	Name, Kinds string
	Before      int64
	List        []inspect.Event
	Next        int64 // the ID before which the list continues; 0: there are no more
}

// columns says which columns of a table of events have a text in some row.
type columns struct{ Token, Client, Reason bool }

func filled(list []inspect.Event) (c columns) {
	for _, e := range list {
		c.Token = c.Token || e.Token != 0
		c.Client = c.Client || e.Host+e.Thread != ""
		c.Reason = c.Reason || e.Detail != "" || len(e.Metadata) > 0
	}
	return c
}

func loadEvents(ctx context.Context, q query) (any, error) {
	e := events{Name: q.get("name"), Kinds: q.get("kind")}
	if before := q.get("before"); before != "" {
		var err error
		if e.Before, err = strconv.ParseInt(before, 10, 64); err != nil || e.Before < 1 {
			return nil, badRequest("The address asks for events before a number that is none.")
		}
	}
	f := inspect.EventFilter{Name: e.Name, Before: e.Before, Newest: true, Limit: shownEvents}
	f.Kinds = strings.FieldsFunc(e.Kinds, func(r rune) bool { return r == ',' || r == ' ' })
	var err error
	e.List, err = take(q.of.Events(ctx, f), shownEvents)
	if len(e.List) == shownEvents {
		e.Next = e.List[len(e.List)-1].ID
	}
	return e, err
}
