package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// fakeSession is the session of a peer's locks.
type fakeSession struct {
	id  string
	ctx context.Context
	end context.CancelCauseFunc

	mu       sync.Mutex // protects deadline
	deadline time.Time
}

// living returns the session, or opens one and keeps it alive.
func (n *peer) living(ctx context.Context) (*fakeSession, error) {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s != nil && s.ctx.Err() == nil {
		return s, nil
	}
	s = &fakeSession{id: fmt.Sprintf("%d/%d", n.p.id, n.p.rng.n(1<<40))}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	sent := time.Now()
	if err := n.call(ctx, func() error { n.s.data.sessions[s.id] = time.Now().Add(fakeTTL); return nil },
		nil); err != nil {
		return nil, err
	}
	s.deadline = sent.Add(fakeTTL - fakeTTL/100 - 2*time.Since(sent))
	go n.keep(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session = s
	return s, nil
}

// keep sends heartbeats, and ends the session at its deadline.
func (n *peer) keep(s *fakeSession) {
	beat := time.NewTicker(fakeTTL / 5)
	defer beat.Stop()
	for s.ctx.Err() == nil && !n.p.dead() {
		s.mu.Lock()
		left := time.Until(s.deadline)
		s.mu.Unlock()
		if left <= 0 {
			break
		}
		select {
		case <-time.After(left):
		case <-beat.C:
			go n.beat(s)
		case <-s.ctx.Done():
		}
	}
	s.end(fmt.Errorf("%w: the session is over", dblock.ErrLost))
}

func (n *peer) beat(s *fakeSession) {
	sent := time.Now()
	known := false
	err := n.travel(func() error {
		if _, known = n.s.data.sessions[s.id]; known && !n.p.dead() {
			n.s.data.sessions[s.id] = time.Now().Add(fakeTTL)
		}
		return nil
	})
	if err != nil {
		return
	}
	if !known {
		s.end(fmt.Errorf("%w: the session is dead", dblock.ErrLost))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.deadline) && known {
		s.deadline = sent.Add(fakeTTL - fakeTTL/100 - 2*time.Since(sent))
	}
}
