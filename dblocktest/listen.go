package dblocktest

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
)

// listener is a session that listens.
type listener struct {
	line  *line
	hints []driver.Hint // the database's mutex protects them
	news  chan struct{}
}

func (l *line) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	own := &listener{line: l, news: make(chan struct{}, 1)}
	cut, err := get(ctx, l, func() chan struct{} {
		l.listeners[session] = own
		return l.cut
	})
	if err != nil {
		return err
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.listeners[session] == own {
			delete(l.listeners, session)
		}
	}()
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cut:
			return errDown
		case <-own.news:
			l.mu.Lock()
			hints := own.hints
			own.hints = nil
			l.mu.Unlock()
			for _, hint := range hints {
				wake(hint)
			}
		}
	}
}

// tell sends a hint to a session that listens. A dead session gets none.
func (d *database) tell(session string, hint driver.Hint) {
	to := d.listeners[session]
	if to == nil || d.dead(session) {
		return
	}
	to.hints = append(to.hints, hint)
	select {
	case to.news <- struct{}{}:
	default:
	}
}
