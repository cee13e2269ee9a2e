package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/wait"
)

// partly is a database in which the queue of one name is locked.
type partly struct {
	driver.Backend

	mu   sync.Mutex // protects left
	left []string   // the attempts that have left another queue
}

func (p *partly) Remove(_ context.Context, r driver.Removal) ([]driver.Handoff, bool, error) {
	if r.Name == "busy" {
		return nil, false, driver.ErrBusy
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, r.Attempt)
	return nil, true, nil
}

func (p *partly) Look(context.Context, string, []string) ([]driver.State, error) {
	return []driver.State{
		{Name: "busy", Queued: []string{"busy a", "busy b", "busy c", "busy d"}}, {Name: "other", Queued: []string{"a", "b", "c", "d"}},
	}, nil
}

// Broken by taking the error of one queue for that of all.
func TestAQueueThatIsBusyKeepsNobodyInAnother(t *testing.T) {
	still := clock.Func(func() time.Duration { return 0 })
	p := &partly{}
	c := New(p, Config{TTL: time.Hour, Clock: still, Log: slog.New(slog.DiscardHandler)})
	s := &clientSession{Session: &session.Session{ID: "s"}, hub: wait.New(t.Context(), p, "s", wait.Config{Clock: still})}
	var all []undo
	for _, id := range []string{"a", "b", "c", "d"} {
		all = append(all, undo{s, &attempt{name: "busy", id: "busy " + id}}, undo{s, &attempt{name: "other", id: id}})
	}
	failed, err := c.leaveTogether(all)
	if err != nil || len(p.left) != 4 {
		t.Fatalf("%v, and %d places were given up", err, len(p.left))
	}
	for i, u := range all {
		if busy := errors.Is(failed[i], driver.ErrBusy); busy != (u.attempt.name == "busy") {
			t.Errorf("%s: %v", u.attempt.id, failed[i])
		}
	}
}
