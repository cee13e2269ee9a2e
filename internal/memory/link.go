package memory

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
)

// Link is the connection of one process to the database. It is the engine of that process.
type Link struct {
	*DB
	cut   chan struct{} // closed while the link is down; Mu protects all three
	why   error         // that the link is down
	asked int           // calls
}

// NewLink makes a link that is not down.
func NewLink(d *DB) *Link { return &Link{DB: d, cut: make(chan struct{})} }

// Down reports whether the link is down. MUST be called with Mu locked.
func (l *Link) Down() bool {
	select {
	case <-l.cut:
		return true
	default:
		return false
	}
}

// Asked is how many calls have come.
func (l *Link) Asked() int {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.asked
}

// do runs f alone on the database, unless ctx has ended or the link is down.
func (l *Link) do(ctx context.Context, f func() error) error {
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
func get[A any](ctx context.Context, l *Link, f func() A) (a A, err error) {
	err = l.do(ctx, func() error {
		a = f()
		return nil
	})
	return a, err
}

// ping returns an error if the link is down.
func (l *Link) ping(ctx context.Context) error { return l.do(ctx, func() error { return nil }) }

// Validate returns nil.
func (l *Link) Validate() error { return nil }

// HostFolder returns none: no other process can use the database.
func (l *Link) HostFolder(bool) (path string, ok bool) { return "", false }

// Schema returns the schema of this build.
func (l *Link) Schema(ctx context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion, UsableFrom: driver.SchemaVersion}, l.ping(ctx)
}

// Connections returns that any number is allowed.
func (l *Link) Connections() driver.Pool { return driver.Pool{} }

// DropReadOnly does nothing: no connection is read-only.
func (l *Link) DropReadOnly(context.Context) {}

// Disconnect cuts the link: every call fails with why, and nothing listens any more.
func (l *Link) Disconnect(why error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.why = why; l.Down() {
		return
	}
	close(l.cut)
	for session, listens := range l.listeners {
		if listens.link == l {
			delete(l.listeners, session)
		}
	}
}

// Reconnect restores the link.
func (l *Link) Reconnect() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Down() {
		l.cut = make(chan struct{})
	}
}
