package store

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/driver"
)

// maxStatement limits the names that one statement of a batch takes and releases.
const maxStatement = 256

// change is a request or a release that shares a statement with others.
type change struct {
	take    driver.Request
	release driver.Held
}

func (c change) name() string { return c.take.Name + c.release.Name }

// outcome is the result of a change. done is false if the change did nothing: the name was not
// plainly free, or the lock not plainly without waiters.
type outcome struct {
	done  bool
	grant driver.Grant
	asked time.Duration // by the client's clock, before the statement was sent
}

func (s *Store) newBatch() *coalesce.Coalescer[change, outcome] {
	return coalesce.New(coalesce.Config[change, outcome]{
		Run: s.runBatch, Refused: Refusal, Key: change.name, Most: maxStatement, Go: s.Go,
	})
}

// runBatch sends a batch. No single caller's context ends it.
func (s *Store) runBatch(changes []change) ([]outcome, error) {
	var takes []driver.Request
	var releases []driver.Held
	for _, c := range changes {
		if c.take.Name != "" {
			takes = append(takes, c.take)
		} else {
			releases = append(releases, c.release)
		}
	}
	outcomes := make([]outcome, len(changes))
	grants, released, asked, err := s.Batch(s.Tidying, takes, releases)
	switch {
	case errors.Is(err, driver.ErrBusy): // one of them had to wait, and nothing was done: each is sent alone
		return outcomes, nil
	case err != nil:
		return nil, err
	}
	for i, c := range changes {
		o := &outcomes[i]
		o.asked = asked
		if c.take.Name != "" {
			o.grant, grants = grants[0], grants[1:]
			o.done = o.grant.Token != 0
		} else {
			o.done, released = released[0], released[1:]
		}
	}
	return outcomes, nil
}

// takeTogether is Take in a batch.
func (s *Session) takeTogether(ctx context.Context, r *driver.Request) (a Answer, taken bool, err error) {
	o, err := s.batch.Do(ctx, change{take: *r})
	a.Grant, a.Asked, a.Left = o.grant, o.asked, ResidueOf(err)
	if left := new(coalesce.Left); errors.As(err, &left) {
		if a.Answered = left.Answered; a.Answered == nil { // it was never sent
			a.Left = Nothing
		}
	}
	return a, o.done, err
}
