package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/wait"
)

// recorder is an engine that notes the names of each statement, and does nothing.
type recorder struct {
	full
	mu         sync.Mutex // protects statements
	statements [][]string
}

func (r *recorder) Run(_ context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, op := range ops {
		names = append(names, op.On())
	}
	r.statements = append(r.statements, names)
	return make([]protocol.Result, len(ops)), nil
}

// Broken by requests for one name in one statement: an engine may be given a name once.
func TestTwoRequestsForOneNameShareNoStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		now := clock.Func(func() time.Duration { return 0 })
		db := New(r, Config{TTL: time.Minute, Clock: now})
		s := &Session{store: db, hub: wait.New(t.Context(), nil, "me", wait.Config{Clock: now})}
		s.batch, s.turns = s.newBatch(), s.newTurns()
		var free []func()
		for { // so that requests wait for each other
			done, alone := s.batch.Alone(protocol.Take{})
			if !alone {
				break
			}
			free = append(free, done)
		}
		for _, name := range []string{"n", "n", "m"} {
			db.Go(func() { _, _ = s.Take(t.Context(), &protocol.Request{Name: name}, true) })
			synctest.Wait()
		}
		for _, done := range free {
			done()
		}
		db.Wait()
		if len(r.statements) != 2 || len(r.statements[0])+len(r.statements[1]) != 3 {
			t.Errorf("the statements are %q", r.statements)
		}
		for _, names := range r.statements {
			if len(names) == 2 && names[0] == names[1] {
				t.Errorf("%q share a statement", names)
			}
		}
	})
}
