package dblockweb

import (
	"context"

	"github.com/dblock-go/dblock/inspect"
)

const shownSessions = 100

type sessions struct {
	Host, App, After string
	Dead             bool
	List             []inspect.Session
	Next             string // the session after which the list continues; "": there are no more
}

func loadSessions(ctx context.Context, q query) (any, error) {
	s := sessions{Host: q.get("host"), App: q.get("app"), After: q.get("after"), Dead: q.get("dead") != ""}
	var err error
	s.List, err = take(q.of.Sessions(ctx, inspect.SessionFilter{Host: s.Host, App: s.App, Dead: s.Dead, After: s.After,
		Limit: shownSessions}), shownSessions)
	if len(s.List) == shownSessions {
		s.Next = s.List[len(s.List)-1].ID
	}
	return s, err
}
