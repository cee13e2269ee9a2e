package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/wait"
)

// slowly is an engine that takes a moment for each statement, refuses what an attempt "refused"
// asks for, and does all the rest.
type slowly struct {
	full
	mu   sync.Mutex
	sent []string // the statements, when they are answered
}

const moment = 10 * time.Millisecond

func (s *slowly) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	time.Sleep(moment)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, said(ops[0]))
	if strings.Contains(said(ops[0]), "refused") {
		return nil, protocol.ErrCapacity
	}
	result := protocol.Result{Outcome: protocol.Done, Ahead: 7}
	if sequence, several := ops[0].(protocol.Sequence); several {
		for range sequence {
			result.Each = append(result.Each, protocol.Result{Outcome: protocol.Done, Ahead: 7})
		}
	}
	return []protocol.Result{result}, nil
}

// said is an op in a word.
func said(op protocol.Op) string {
	switch op := op.(type) {
	case protocol.Take:
		return "take " + op.Attempt
	case protocol.Join:
		return "join " + op.Attempt
	case protocol.Removal:
		if op.Cause == protocol.ByAttempt {
			return "undo " + op.Attempt
		}
		return fmt.Sprint("release ", op.Token)
	}
	var all []string
	for _, one := range op.(protocol.Sequence) {
		all = append(all, said(one))
	}
	return strings.Join(all, ", ")
}

func newSlow(t *testing.T) (*Session, *slowly) {
	e := &slowly{}
	now := clock.Func(func() time.Duration { return 0 })
	s := &Session{store: New(e, Config{TTL: time.Minute, Clock: now}), hub: wait.New(t.Context(), nil, "me",
		wait.Config{Clock: now})}
	s.batch, s.turns = s.newBatch(), s.newTurns()
	return s, e
}

func share(attempt string) *protocol.Request {
	return &protocol.Request{Name: "n", Attempt: attempt, Units: 1, Of: 8, Patient: true}
}

func shared(token int64) protocol.Removal {
	return protocol.Release(protocol.Held{Name: "n", Token: token, Shared: true}, true, false)
}

// begin runs a call, which is sent or waits when begin returns.
func (s *Session) begin(call func()) {
	s.store.Go(call)
	synctest.Wait()
}

// Broken by an op that is sent while an earlier one of the name is in flight, or before one that
// waits: a writer that passes readers, or the undoing of an attempt that is still on its way.
func TestOpsOfOneNameGoTogetherInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newSlow(t)
		ctx := t.Context()
		whole := &protocol.Request{Name: "n", Attempt: "whole", Patient: true}
		s.begin(func() { _, _ = s.Take(ctx, share("a"), true) })
		s.begin(func() { _, _ = s.Release(ctx, shared(1)) })
		s.begin(func() { _, _ = s.Join(ctx, share("b"), "") })
		s.begin(func() { _, _ = s.Take(ctx, whole, true) })
		s.begin(func() {
			if joined, err := s.Join(ctx, whole, "earlier"); joined.Ahead != 7 { // the place has grown
				t.Errorf("%+v, %v", joined, err)
			}
		})
		s.begin(func() { _, _ = s.Do(ctx, protocol.Undo("", "n", "a")) })
		s.begin(func() { _, _ = s.Take(ctx, share("c"), false) })
		time.Sleep(moment * 3 / 2)
		s.begin(func() { _, _ = s.Release(ctx, shared(2)) })
		s.store.Wait()
		assert.Equal(t, fmt.Sprintf("%q", e.sent), fmt.Sprintf("%q", []string{
			"take a", "release 1, join b, take whole, join whole, undo a, take c", "release 2",
		}))
		s.begin(func() { _, _ = s.Join(ctx, whole, "") })
		s.begin(func() { _, _ = s.Join(ctx, whole, "") })
		s.store.Wait()
		assert.Equal(t, fmt.Sprintf("%q", e.sent[3:]), `["join whole" "join whole"]`, "without shares")
	})
}

// A guarded release may be refused for as long as a transaction is open.
func TestAGuardedReleaseGoesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newSlow(t)
		guarded := shared(9)
		guarded.Guarded = true
		s.begin(func() { _, _ = s.Take(t.Context(), share("a"), true) })
		s.begin(func() { _, _ = s.Join(t.Context(), share("b"), "") })
		time.Sleep(moment / 2)
		s.begin(func() { _, _ = s.Release(t.Context(), guarded) })
		s.store.Wait()
		assert.Equal(t, fmt.Sprintf("%q", e.sent), `["take a" "release 9" "join b"]`)
	})
}

// Requests of the whole name and of shares wait for a row for a moment. More of them come than go
// into one statement.
func TestATryLockNeverWaitsBehindAStatementThatWaitsForARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newSlow(t)
		try := func(attempt string) *protocol.Request {
			r := share(attempt)
			r.Patient = false
			return r
		}
		whole := &protocol.Request{Name: "n", Attempt: "whole", Patient: true}
		s.begin(func() { _, _ = s.Take(t.Context(), share("a"), true) })
		s.begin(func() { _, _ = s.Join(t.Context(), whole, "") })
		for range maxTurn {
			s.begin(func() { _, _ = s.Join(t.Context(), share("b"), "") })
		}
		time.Sleep(moment / 2)
		began := time.Now()
		var took [3]time.Duration
		for i, attempt := range []string{"c", "d", "e"} {
			s.begin(func() {
				_, _ = s.Take(t.Context(), try(attempt), true)
				took[i] = time.Since(began)
			})
		}
		s.store.Wait()
		assert.Equal(t, fmt.Sprint(took), fmt.Sprint([]time.Duration{moment, 2 * moment, 2 * moment}))
		assert.Equal(t, fmt.Sprintf("%.12q", e.sent), `["take a" "take c" "join whole, " "take d, take" "join b"]`)
	})
}

func TestARequestThatIsRefusedIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newSlow(t)
		s.begin(func() { _, _ = s.Take(t.Context(), share("a"), true) })
		for _, attempt := range []string{"b", "refused", "c", "d"} {
			s.begin(func() {
				answer, err := s.Join(t.Context(), share(attempt), "")
				refused := attempt == "refused"
				if answer.Taken() == refused || errors.Is(err, protocol.ErrCapacity) != refused {
					t.Errorf("%s: %+v, %v", attempt, answer, err)
				}
			})
		}
		s.store.Wait()
		assert.Equal(t, e.sent[len(e.sent)-1], "join c, join d", "the last")
	})
}

// The statement goes on for the others, and each caller learns what came of its own request.
func TestACallerThatLeavesEndsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newSlow(t)
		ctx, end := context.WithCancelCause(t.Context())
		var sent, unsent Answer
		s.begin(func() { _, _ = s.Take(t.Context(), share("a"), true) })
		s.begin(func() { sent, _ = s.Join(ctx, share("b"), "") })
		s.begin(func() { _, _ = s.Join(t.Context(), share("c"), "") })
		time.Sleep(moment * 3 / 2)
		s.begin(func() { unsent, _ = s.Join(ctx, share("d"), "") })
		end(contract.ErrUnlocked) // an error that a statement may have, too: it says that nothing was done
		synctest.Wait()
		if sent.Left != Unsure || sent.Answered == nil || unsent.Left != Nothing || unsent.Answered != nil {
			t.Errorf("sent: %+v; not sent: %+v", sent, unsent)
		}
		<-sent.Answered
		s.store.Wait()
		assert.Equal(t, fmt.Sprintf("%q", e.sent), `["take a" "join b, join c"]`)
	})
}
