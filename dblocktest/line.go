package dblocktest

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/driver"
)

var errDown = driver.Fail(driver.ErrUnavailable, errors.New("dblocktest: the database is away: Down was called"))

// line is the connection of one process to the database. It is the engine of that process.
type line struct {
	*database
	cut  chan struct{}  // closed while the line is down; the database's mutex protects it
	core *client.Client // of the process
}

func newLine(d *database) *line { return &line{database: d, cut: make(chan struct{})} }

// down reports whether the line is down. MUST be called with mu locked.
func (l *line) down() bool {
	select {
	case <-l.cut:
		return true
	default:
		return false
	}
}

// do runs f alone on the database, unless ctx has ended or the line is down.
func (l *line) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		return errDown
	}
	return f()
}

// get is do for a function with an answer that cannot fail.
func get[A any](ctx context.Context, l *line, f func() A) (a A, err error) {
	err = l.do(ctx, func() error {
		a = f()
		return nil
	})
	return a, err
}

// ping returns an error if the line is down.
func (l *line) ping(ctx context.Context) error { return l.do(ctx, func() error { return nil }) }

// Validate returns nil.
func (l *line) Validate() error { return nil }

// Schema returns the schema of this build.
func (l *line) Schema(ctx context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion, UsableFrom: driver.SchemaVersion}, l.ping(ctx)
}

// Connections returns that any number is allowed.
func (l *line) Connections() (inUse, most int) { return 0, 0 }

// DropReadOnly does nothing: no connection is read-only.
func (l *line) DropReadOnly(context.Context) {}

// disconnect cuts the line.
func (l *line) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		return
	}
	close(l.cut)
	for session, listens := range l.listeners {
		if listens.line == l {
			delete(l.listeners, session)
		}
	}
}

// reconnect restores the line.
func (l *line) reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		l.cut = make(chan struct{})
	}
}
