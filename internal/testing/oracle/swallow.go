package oracle

import (
	"context"
	"errors"
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

func (s *Swallowing) EndSession(ctx context.Context, session string) error {
	return s.each(func() error { return s.Engine.EndSession(ctx, session) })
}

func (s *Swallowing) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) (next []driver.Handoff, err error) {
	err = s.each(func() (err error) {
		next, err = s.Engine.Change(ctx, how, transition)
		return err
	})
	return next, err
}

func (s *Swallowing) Take(ctx context.Context, r driver.Request) (g driver.Grant, taken bool, err error) {
	err = s.each(func() (err error) {
		g, taken, err = s.Engine.Take(ctx, r)
		return err
	})
	return g, taken, err
}

func (s *Swallowing) Join(ctx context.Context, r driver.Request) (g driver.Grant, outcome driver.Outcome, err error) {
	err = s.each(func() (err error) {
		g, outcome, err = s.Engine.Join(ctx, r)
		return err
	})
	return g, outcome, err
}

func (s *Swallowing) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	err = s.each(func() (err error) {
		next, left, err = s.Engine.Remove(ctx, r)
		return err
	})
	return next, left, err
}

func (s *Swallowing) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	err = s.each(func() (err error) {
		grants, released, err = s.Engine.Batch(ctx, takes, releases)
		return err
	})
	return grants, released, err
}
