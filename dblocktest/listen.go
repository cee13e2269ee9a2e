package dblocktest

import (
	"context"

	"github.com/dblock-go/dblock/driver"
)

// ear is a session that listens.
type ear struct {
	line  *line
	hints []driver.Hint // the database's mutex protects them
	news  chan struct{}
}

func (l *line) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	e := &ear{line: l, news: make(chan struct{}, 1)}
	cut, err := ask(ctx, l, func() (chan struct{}, error) {
		l.ears[session] = e
		return l.cut, nil
	})
	if err != nil {
		return err
	}
	defer l.deafen(session, e)
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cut:
			return errDown
		case <-e.news:
			for _, hint := range l.heard(e) {
				wake(hint)
			}
		}
	}
}

func (d *database) deafen(session string, e *ear) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ears[session] == e {
		delete(d.ears, session)
	}
}

func (d *database) heard(e *ear) []driver.Hint {
	d.mu.Lock()
	defer d.mu.Unlock()
	hints := e.hints
	e.hints = nil
	return hints
}

// tell gives a hint to a session that listens. The dead are not told.
func (d *database) tell(session string, hint driver.Hint) {
	e := d.ears[session]
	if e == nil || d.dead(session) {
		return
	}
	e.hints = append(e.hints, hint)
	select {
	case e.news <- struct{}{}:
	default:
	}
}
