package ledger

import (
	"context"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// parallelism limits how many attempts are being undone at a time, so that they leave connections
// of the application's pool free.
const parallelism = 8

// Abandon undoes, in the background, whatever an attempt has left. MUST be called within a call.
func (l *Ledger) Abandon(g *Grant, left store.Residue) {
	l.Undo(g, func() { l.Return(g, left) })
}

// AbandonAfter is Abandon once the statement of the attempt is answered; nil: it is not in flight.
func (l *Ledger) AbandonAfter(g *Grant, left store.Residue, answered <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandonAfter(g, left, answered)
}

// Undo runs f in the background. After f nothing of the attempt is left. MUST be called within a
// call.
func (l *Ledger) Undo(g *Grant, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undo(g, f)
}

// undo is Undo for a caller that has locked mu.
func (l *Ledger) undo(g *Grant, f func()) {
	undone := make(chan struct{})
	l.move(g, leave)
	g.undone = undone
	l.end(g, true)
	l.config.Store.Go(func() {
		f()
		l.Finish(g, true)
		close(undone)
	})
}

// abandon is Abandon for a caller that has locked mu.
func (l *Ledger) abandon(g *Grant, left store.Residue) { l.abandonAfter(g, left, nil) }

// abandonAfter is AbandonAfter for a caller that has locked mu.
func (l *Ledger) abandonAfter(g *Grant, left store.Residue, answered <-chan struct{}) {
	l.undo(g, func() {
		if answered != nil {
			<-answered
		}
		l.Return(g, left)
	})
}

// Return releases the lock or the place of an attempt until that succeeds or the session ends: no
// error may leave a name held by an attempt that no caller knows of. If left is Unsure, the
// statement of the attempt may run after Return has found nothing: all claims of the session are
// listed afterwards.
func (l *Ledger) Return(g *Grant, left store.Residue) {
	within, cancel := contract.UntilClosed(l.config.Store.Tidying, g.In.Context())
	defer cancel()
	_ = l.config.Store.Retry(within, store.Undoing, func() error {
		err := l.TryReturn(g)
		switch {
		case err == nil:
			l.givingBack.Worked()
		case !l.config.Store.Transient(err) && within.Err() == nil:
			l.givingBack.Failed(err, "name", g.Name)
		}
		return err
	})
	if left == store.Unsure {
		g.In.NoteUnknown()
	}
}

// TryReturn releases the lock or the place of an attempt, in one try.
func (l *Ledger) TryReturn(g *Grant) error {
	tidying := l.config.Store.Tidying
	select {
	case l.undoing <- struct{}{}:
		defer func() { <-l.undoing }()
	case <-tidying.Done():
		return tidying.Err()
	}
	r := protocol.Undo(g.In.ID, g.Name, g.ID)
	r.Guarded = g.Guarded.Load()
	_, err := g.In.Do(tidying, r)
	return err
}

// Undone waits for an attempt of this client that is being undone, until ctx ends. It returns false
// if there is no such attempt, or if it waits for the application's transactions that it has
// guarded.
func (l *Ledger) Undone(ctx context.Context, attempt string) bool {
	l.mu.Lock()
	g := l.attempts[attempt]
	var undone <-chan struct{}
	if g != nil && g.state == Leaving && !g.Guarded.Load() {
		undone = g.undone
	}
	l.mu.Unlock()
	if undone == nil {
		return false
	}
	select {
	case <-undone:
		return true
	case <-ctx.Done():
		return false
	}
}
