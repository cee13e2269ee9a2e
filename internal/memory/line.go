package memory

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
)

// Line is the connection of one process to the database. It is the engine of that process.
type Line struct {
	*DB
	cut   chan struct{} // closed while the line is down; Mu protects all three
	why   error         // that the line is down
	asked int           // calls
}

// NewLine makes a line that is not down.
func NewLine(d *DB) *Line { return &Line{DB: d, cut: make(chan struct{})} }

// Down reports whether the line is down. MUST be called with Mu locked.
func (l *Line) Down() bool {
	select {
	case <-l.cut:
		return true
	default:
		return false
	}
}

// Asked is how many calls have come.
func (l *Line) Asked() int {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.asked
}

// do runs f alone on the database, unless ctx has ended or the line is down.
func (l *Line) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.asked++
	if l.Down() {
		return l.why
	}
	return f()
}

// get is do for a function with an answer that cannot fail.
func get[A any](ctx context.Context, l *Line, f func() A) (a A, err error) {
	err = l.do(ctx, func() error {
		a = f()
		return nil
	})
	return a, err
}

// ping returns an error if the line is down.
func (l *Line) ping(ctx context.Context) error { return l.do(ctx, func() error { return nil }) }

// Validate returns nil.
func (l *Line) Validate() error { return nil }

// Schema returns the schema of this build.
func (l *Line) Schema(ctx context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion, UsableFrom: driver.SchemaVersion}, l.ping(ctx)
}

// Connections returns that any number is allowed.
func (l *Line) Connections() driver.Pool { return driver.Pool{} }

// DropReadOnly does nothing: no connection is read-only.
func (l *Line) DropReadOnly(context.Context) {}

// Disconnect cuts the line: every call fails with why, and nothing listens any more.
func (l *Line) Disconnect(why error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.why = why; l.Down() {
		return
	}
	close(l.cut)
	for session, listens := range l.listeners {
		if listens.line == l {
			delete(l.listeners, session)
		}
	}
}

// Reconnect restores the line.
func (l *Line) Reconnect() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Down() {
		l.cut = make(chan struct{})
	}
}
