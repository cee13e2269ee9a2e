package memory

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
)

// listener is a session that listens.
type listener struct {
	link  *Link
	hints []protocol.Hint // the database's mutex protects them
	news  chan struct{}
}

func (l *Link) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	own := &listener{link: l, news: make(chan struct{}, 1)}
	cut, err := get(ctx, l, func() chan struct{} {
		l.listeners[session] = own
		return l.cut
	})
	if err != nil {
		return err
	}
	defer func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
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
			return l.reason()
		case <-own.news:
			l.Mu.Lock()
			hints := own.hints
			own.hints = nil
			l.Mu.Unlock()
			for _, hint := range hints {
				wake(hint)
			}
		}
	}
}

// reason returns why the link was last down.
func (l *Link) reason() error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.why
}

// tell sends a hint to a session that listens. A dead session gets none.
func (d *DB) tell(session string, hint protocol.Hint) {
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
