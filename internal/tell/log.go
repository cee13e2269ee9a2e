package tell

import (
	"context"
	"log/slog"
	"time"
)

// Logger returns a logger that hands records to the handler of another one through a queue of its
// own. A logger that has such a queue already is returned unchanged.
func Logger(to *slog.Logger) (*slog.Logger, *Queue) {
	if h, ok := to.Handler().(handler); ok {
		return to, h.queue
	}
	h := handler{to: to.Handler()}
	h.queue = New(func(n int) {
		r := slog.NewRecord(time.Now(), slog.LevelWarn,
			"dblock: log entries were left out: the logger was too slow for them", 0)
		r.Add("entries", n)
		handle(h.to, context.Background(), r)
	})
	return slog.New(h), h.queue
}

// handler is a slog.Handler that queues.
type handler struct {
	to    slog.Handler
	queue *Queue
}

// Enabled returns true, because the call of the application's handler might block. The queue calls
// the handler's Enabled before Handle.
func (handler) Enabled(context.Context, slog.Level) bool { return true }

// Handle queues a record. ctx is kept for its values: it may end before the record is handled.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.queue.Add(func() { handle(h.to, ctx, r) })
	return nil
}

func handle(to slog.Handler, ctx context.Context, r slog.Record) {
	if to.Enabled(ctx, r.Level) {
		_ = to.Handle(ctx, r)
	}
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.to.WithAttrs(attrs), h.queue}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.to.WithGroup(name), h.queue} }
