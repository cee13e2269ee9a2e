package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// fakeLock is a lock on one server.
type fakeLock struct {
	n      *peer
	s      *fakeSession
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects token
	token int64
}

func (l *fakeLock) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

func (l *fakeLock) Context() context.Context { return l.ctx }

func (l *fakeLock) Until() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.deadline
}

func (l *fakeLock) Raise(ctx context.Context, token int64) (int64, error) {
	had := l.Token()
	raised := max(had, token)
	err := l.n.call(ctx, func() error {
		switch {
		case l.n.s.data.rows[l.name] != row{had, l.s.id, l}:
			return dblock.ErrLost
		case !l.n.s.bugs.noWriteBack:
			l.n.s.data.rows[l.name] = row{raised, l.s.id, l}
		}
		return nil
	}, nil)
	if err == nil && !l.n.s.bugs.noWriteBack {
		l.mu.Lock()
		l.token = raised
		l.mu.Unlock()
	}
	return raised, err
}

func (l *fakeLock) Unlock(ctx context.Context) error {
	lost := l.ctx.Err() != nil
	l.cancel(dblock.ErrNotHeld)
	err := l.n.call(ctx, func() error { l.free(); return nil }, nil)
	if err != nil && !errors.Is(err, errCrashed) {
		go l.undo()
	}
	if lost {
		return dblock.ErrLost
	}
	return err
}

// free releases the name, whatever its token was raised to.
func (l *fakeLock) free() {
	if r := l.n.s.data.rows[l.name]; r.attempt == l {
		l.n.s.data.rows[l.name] = row{token: r.token}
	}
}

// undo is what a node's client does in the background while its session lives.
func (l *fakeLock) undo() {
	for l.s.ctx.Err() == nil && !l.n.p.dead() && l.n.travel(func() error { l.free(); return nil }) != nil {
		time.Sleep(100 * time.Millisecond)
	}
}
