package oracle

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/swallow"
)

// Swallowing is an engine one of whose statements is swallowed in each request, and another one
// when the request is repeated, for as long as it fails with the error Unproven. Such a request
// must have done nothing, and any other must have done all.
type Swallowing struct {
	Engine
	Statements *swallow.Statements
	Unproven   error
	Spare      func(text string) bool // which statements are never swallowed
	Count      map[string]int         // by the name of a statement, how often it was swallowed

	requests int
}

// often is how often each statement is swallowed at least, wherever it stands.
const often = 3

// Compare compares the engine with package protocol for so many seeds, and for more of them until
// each of these statements was swallowed. It fails if that takes ten times as many.
func (s *Swallowing) Compare(t T, seeds, steps int, statements ...string) {
	t.Helper()
	for seed := range 30 * seeds {
		Compare(t, s, uint64(seed), steps)
		statements = slices.DeleteFunc(statements, func(name string) bool { return s.Count[name] > 0 })
		if seed+1 >= seeds && len(statements) == 0 {
			return
		}
	}
	t.Fatalf("never swallowed: %v", statements)
}

// each makes a request until it does not fail for a statement that was swallowed.
func (s *Swallowing) each(request func() error) (err error) {
	s.requests++
	for skip := s.requests % often; ; skip++ {
		s.Statements.Arm(func(text string, nth int) bool {
			return (s.Count[name(text)] < often || nth >= skip) && !s.Spare(text)
		})
		err = request()
		text := s.Statements.Disarm()
		if text != "" {
			s.Count[name(text)]++
		}
		if text == "" || !errors.Is(err, s.Unproven) {
			return err
		}
	}
}

// name is the name of a statement.
func name(text string) string {
	_, text, _ = strings.Cut(text, "-- name: ")
	text, _, _ = strings.Cut(text, " ")
	return text
}

func (s *Swallowing) OpenSession(ctx context.Context, is driver.Session) error {
	return s.each(func() error { return s.Engine.OpenSession(ctx, is) })
}

func (s *Swallowing) EndSession(ctx context.Context, session string, empty bool) error {
	return s.each(func() error { return s.Engine.EndSession(ctx, session, empty) })
}

func (s *Swallowing) Run(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	err = s.each(func() (err error) {
		results, err = s.Engine.Run(ctx, ops...)
		return err
	})
	return results, err
}
