package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// peer is a process's client of a server.
type peer struct {
	p *process
	s *server

	mu      sync.Mutex // protects what follows
	session *fakeSession
}

// call does something on the server, with a delay in each direction. If the caller is gone by then,
// late is called.
func (n *peer) call(ctx context.Context, do func() error, late func()) error {
	if err := n.p.step(); err != nil {
		return err
	}
	var mu sync.Mutex // protects gone, and orders the answer and the caller's leaving
	gone := false
	done := make(chan error, 1)
	go func() {
		err := n.travel(do)
		mu.Lock()
		defer mu.Unlock()
		if gone && err == nil && late != nil {
			go late()
		}
		done <- err
	}()
	ended := ctx.Done()
	if n.p.stop() { // and does not notice that its time is over
		ended = nil
	}
	var err error
	select {
	case err = <-done:
	case <-ended:
		mu.Lock()
		defer mu.Unlock()
		select {
		case err = <-done:
		default:
			gone = true
			return ctx.Err()
		}
	}
	if crash := n.p.step(); crash != nil {
		return crash
	}
	return err
}

func (n *peer) travel(do func() error) error {
	n.s.mu.Lock()
	slow := n.s.slow
	n.s.mu.Unlock()
	time.Sleep(n.p.rng.upTo(5*time.Millisecond) + slow)
	if !n.p.rng.calm && n.p.rng.n(200) == 0 {
		time.Sleep(n.p.rng.upTo(3 * fakeTTL / 2))
	}
	n.s.mu.Lock()
	down, hangs := n.s.down, n.s.hangs
	var err error
	if !down {
		err = do()
	}
	n.s.mu.Unlock()
	if down && hangs {
		time.Sleep(fakeTTL)
	}
	if down {
		return errDown
	}
	time.Sleep(n.p.rng.upTo(5 * time.Millisecond))
	return err
}

func (n *peer) TryLock(ctx context.Context, name string) (nodeLock, error) {
	s, err := n.living(ctx)
	if err != nil {
		return nil, err
	}
	l := &fakeLock{n: n, s: s, name: name}
	l.ctx, l.cancel = context.WithCancelCause(s.ctx)
	err = n.call(ctx, func() (err error) { l.token, err = n.s.take(name, s.id, l); return err }, func() { l.undo() })
	if err != nil {
		return nil, err
	}
	if l.ctx.Err() != nil {
		go l.undo()
		return nil, dblock.ErrUnavailable
	}
	return l, nil
}

func (n *peer) Memory(ctx context.Context) (memory, error) {
	var m memory
	if err := n.call(ctx, func() error { m = n.s.memory(); return nil }, nil); err != nil {
		return memory{}, err // m may still be written
	}
	if n.s.bugs.noQuarantine {
		m = memory{time.Hour, max(m.floor, 1)}
	}
	return m, nil
}

func (n *peer) Highest(ctx context.Context) (int64, error) {
	var h int64
	if err := n.call(ctx, func() error { h = n.s.highest(); return nil }, nil); err != nil {
		return 0, err
	}
	if n.s.bugs.noHealing {
		h = 1
	}
	return h, nil
}

func (n *peer) Renew(ctx context.Context, floor int64) error {
	return n.call(ctx, func() error { n.s.data.since, n.s.data.floor = time.Now(), floor; return nil }, nil)
}
