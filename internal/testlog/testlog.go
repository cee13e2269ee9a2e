// Package testlog makes loggers for tests.
package testlog

import (
	"context"
	"io"
	"log/slog"
)

// New makes a logger that writes to w, and fails a test with what comes at the level of errors:
// that should never happen, whatever a database does.
func New(w io.Writer, fail func(args ...any)) *slog.Logger {
	return slog.New(handler{slog.NewTextHandler(w, nil), fail})
}

type handler struct {
	slog.Handler
	fail func(args ...any)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.fail(r.Message)
	}
	return h.Handler.Handle(ctx, r)
}
