package dblockweb

import (
	"context"
	"iter"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/jobs"
)

// Source supplies the data and the actions of the page. Its methods are those of an
// inspect.Inspector, a jobs.Runner and a dblock.Client.
type Source interface {
	Lock(ctx context.Context, name string) (inspect.Info, error)
	Why(ctx context.Context, name string) ([]inspect.Info, error)
	List(ctx context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error]
	Watch(ctx context.Context, name string) iter.Seq2[inspect.Info, error]
	Events(ctx context.Context, f inspect.EventFilter) iter.Seq2[inspect.Event, error]
	Sessions(ctx context.Context, f inspect.SessionFilter) iter.Seq2[inspect.Session, error]
	Jobs(ctx context.Context) iter.Seq2[jobs.Run, error]
	Runs(ctx context.Context, name string) iter.Seq2[jobs.Run, error]
	Ask(ctx context.Context, name, reason string) error
	Break(ctx context.Context, name, reason string, tokens ...int64) (holders int, err error)
}

// breaker is a *dblock.Client with any type of transactions.
type breaker interface {
	Ask(ctx context.Context, name, reason string) error
	Break(ctx context.Context, name, reason string, tokens ...int64) (holders int, err error)
}

// database is the Source of a client.
type database struct {
	*inspect.Inspector
	*jobs.Runner
	breaker
}
