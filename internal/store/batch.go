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
		Send: s.runBatch, Refused: Refusal, Key: protocol.Op.On, Most: maxStatement, Go: s.store.Go,
	})
}

// maxTurn limits the ops of a name that one transaction makes. It has the name's row locked
// meanwhile: a batch takes some milliseconds, and a request of another client waits for the row for
// 20 ms at least, on every engine.
const maxTurn = 64

// newTurns makes the coalescer of ops of one name each. One statement of a lane is in flight at a
// time, unless it is not answered for long.
func (s *Session) newTurns() *coalesce.Coalescer[protocol.Op, outcome] {
	return coalesce.New(coalesce.Config[protocol.Op, outcome]{
		Send: s.runTurn, Refused: Refusal, Lane: lane, Slots: 1, Most: maxTurn, Go: s.store.Go,
	})
}

// lane returns the lane of an op: a name has one for the ops that may wait for a locked row, and
// one for those that must not (TryLock, and a Lock that has found a long transaction). In the first
// no op overtakes another, and none waits for a row that the session itself has locked. An op of
// the second never waits behind one that waits for a row. It meets the statements of the first lane
// as it meets those of another client.
func lane(op protocol.Op) string {
	if protocol.Waits(op) {
		return "wait " + op.On()
	}
	return "try " + op.On()
}

// runTurn sends ops of one name in their order. No single caller's context ends the statement.
func (s *Session) runTurn(ops []protocol.Op) ([]outcome, error) {
	op := ops[0]
	if len(ops) > 1 {
		op = protocol.Sequence(ops)
	}
	results, asked, err := s.store.Run(s.store.Tidying, op)
	each := results
	if len(ops) > 1 {
		each = results[0].Each
	}
	s.deliver(op.On(), results[0].Next, asked, err)
	outcomes := make([]outcome, len(each))
	for i, result := range each {
		outcomes[i] = outcome{result, asked}
	}
	return outcomes, err
}

// inTurn reports whether an op is sent behind those of its lane that came before it. Ops of shares
// are. So is every request and release of a name in whose lane such ops are in flight, so that no
// writer overtakes a reader. A guarded release is sent by itself: a guarded transaction may refuse
// it.
func (s *Session) inTurn(op protocol.Op, shared bool) bool { return shared || s.turns.Busy(op) }

// beside sends an op with others. If ctx ends after the op was sent, the op may still have its
// effect, whatever the cause of that end says.
func beside(
	ctx context.Context, c *coalesce.Coalescer[protocol.Op, outcome], op protocol.Op,
) (outcome, error) {
	o, err := c.Do(ctx, op)
	if left := new(coalesce.Left); errors.As(err, &left) && left.Answered != nil {
		err = driver.Mark(driver.ErrInDoubt, err)
	}
	return o, err
}

// turn sends an op behind those of its lane that came before it: at once if none is in flight.
func (s *Session) turn(ctx context.Context, op protocol.Op) (outcome, error) {
	done, alone := s.turns.Alone(op)
	if !alone {
		return beside(ctx, s.turns, op)
	}
	defer done()
	results, asked, err := s.store.Run(ctx, op)
	s.deliver(op.On(), results[0].Next, asked, err)
	return outcome{results[0], asked}, err
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

// answered converts the outcome of a request that may have shared a statement.
func answered(o outcome, err error) (Answer, error) {
	a, _ := answer([]protocol.Result{o.Result}, o.asked, err)
	if left := new(coalesce.Left); errors.As(err, &left) {
		if a.Answered = left.Answered; a.Answered == nil { // the request was never sent
			a.Left = Nothing
		}
	}
	return a, err
}
