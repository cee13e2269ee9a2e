package main

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// hurried is an engine whose caller's context ends while a statement is in flight. The statement
// has its effect.
type hurried struct {
	driver.Backend
	end      func()
	sessions map[string]bool
}

func (h hurried) OpenSession(ctx context.Context, s driver.Session) error {
	h.sessions[s.ID] = true
	h.end()
	return ctx.Err()
}

func (h hurried) EndSession(ctx context.Context, session string, _ bool) error {
	if ctx.Err() == nil {
		delete(h.sessions, session)
	}
	return ctx.Err()
}

func (h hurried) Upkeep(context.Context, string) (driver.Upkeep, error) { return deaf{end: h.end}, nil }

// deaf is a connection on which listening ends with the caller's context.
type deaf struct {
	driver.Upkeep
	end func()
}

func (h deaf) Listen(context.Context, string, func(), func(protocol.Hint)) error {
	h.end()
	return nil
}

func (deaf) Close() error { return nil }

func TestACheckThatIsCutOffLeavesNoSessionAndSaysSo(t *testing.T) {
	for _, c := range checks {
		if c.name != "session" && c.name != "listening" {
			continue
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		h := hurried{end: func() { cancel(errors.New("no answer for long")) }, sessions: map[string]bool{}}
		diagnosis{TB: t, made: c.run(ctx, &examination{backend: h})}.hasOnly(isUnknown, c.name, "no answer for long")
		assert.Equal(t, len(h.sessions), 0, "sessions are left")
	}
}
