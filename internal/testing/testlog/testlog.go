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

// Stuck makes a logger of which every method blocks until a channel is closed.
func Stuck(until <-chan struct{}) *slog.Logger { return slog.New(stuck(until)) }

type stuck <-chan struct{}

func (s stuck) Enabled(context.Context, slog.Level) bool  { <-s; return false }
func (s stuck) Handle(context.Context, slog.Record) error { <-s; return nil }
func (s stuck) WithAttrs([]slog.Attr) slog.Handler        { return s }
func (s stuck) WithGroup(string) slog.Handler             { return s }
