package store

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// maxStatement limits the names that one statement of a batch takes and releases.
const maxStatement = 256

// outcome is the result of an op in a batch: Undone if the name was not plainly free, or if the
// lock may have waiters.
type outcome struct {
	protocol.Result
	asked time.Duration // by the client's clock, before the statement was sent
}

func (s *Session) newBatch() *coalesce.Coalescer[protocol.Op, outcome] {
	return coalesce.New(coalesce.Config[protocol.Op, outcome]{
		Run: s.runBatch, Refused: Refusal, Key: protocol.Op.On, Most: maxStatement, Go: s.store.Go,
	})
}

// runBatch sends a batch. No single caller's context ends it. The engine runs an op that is alone
// in its batch in full: a release may then transfer the name, also to a waiter of this session.
func (s *Session) runBatch(ops []protocol.Op) ([]outcome, error) {
	results, asked, err := s.store.Run(s.store.Tidying, ops...)
	outcomes := make([]outcome, len(ops))
	for i, op := range ops {
		outcomes[i] = outcome{results[i], asked}
		s.deliver(op.On(), results[i].Next, asked, err)
	}
	if errors.Is(err, driver.ErrBusy) { // one op would have had to wait, and nothing was done: each is sent alone
		err = nil
	}
	return outcomes, err
}

// takeTogether takes a name in a batch.
func (s *Session) takeTogether(ctx context.Context, r *protocol.Request) (Answer, error) {
	o, err := s.batch.Do(ctx, protocol.Take{Request: *r})
	a := Answer{Outcome: o.Outcome, Grant: o.Grant, Asked: o.asked, Left: ResidueOf(err)}
	if left := new(coalesce.Left); errors.As(err, &left) {
		if a.Answered = left.Answered; a.Answered == nil { // the request was never sent
			a.Left = Nothing
		}
	}
	return a, err
}
