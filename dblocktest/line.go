package dblocktest

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/driver"
)

var errDown = driver.Fail(driver.ErrUnavailable, errors.New("dblocktest: the database is away: Down was called"))

// line is how one process reaches the database. It is the engine of that process.
type line struct {
	*database
	cut chan struct{} // closed while the line is down; the database's mutex protects it
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

// ask runs a transition of the database, unless ctx has ended or the line is down.
func ask[A any](ctx context.Context, l *line, transition func() (A, error)) (a A, err error) {
	if err := ctx.Err(); err != nil {
		return a, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		return a, errDown
	}
	return transition()
}

// do is ask without an answer.
func (l *line) do(ctx context.Context, transition func() error) error {
	_, err := ask(ctx, l, func() (struct{}, error) { return struct{}{}, transition() })
	return err
}

// Validate finds nothing wrong.
func (l *line) Validate() error { return nil }

// Schema is that of this build.
func (l *line) Schema(ctx context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion, UsableFrom: driver.SchemaVersion}, l.do(ctx, func() error { return nil })
}

// Connections are any number.
func (l *line) Connections() (inUse, most int) { return 0, 0 }

// DropReadOnly does nothing: nothing here is read-only.
func (l *line) DropReadOnly(context.Context) {}

// fall cuts the line.
func (l *line) fall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		return
	}
	close(l.cut)
	for session, e := range l.ears {
		if e.line == l {
			delete(l.ears, session)
		}
	}
}

// rise mends the line.
func (l *line) rise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		l.cut = make(chan struct{})
	}
}
