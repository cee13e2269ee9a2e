package dblock

import (
	"context"
	"iter"
)

// Inspector looks at locks and intervenes, without the type of the application's transactions: for
// exporters, web pages and operators' tools. *Client is one, for every TX.
type Inspector interface {
	Inspect(ctx context.Context, name string) (Info, error)
	Why(ctx context.Context, name string) ([]Info, error)
	List(ctx context.Context, f Filter) iter.Seq2[Info, error]
	Watch(ctx context.Context, name string) iter.Seq2[Info, error]
	Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error]
	Sessions(ctx context.Context, f SessionFilter) iter.Seq2[Session, error]
	Jobs(ctx context.Context) iter.Seq2[Run, error]
	Runs(ctx context.Context, name string) iter.Seq2[Run, error]
	Ask(ctx context.Context, name, reason string) error
	Break(ctx context.Context, name, reason string, tokens ...int64) (holders int, err error)
}
