package session

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// listenTimeout limits how long Listen waits for a reserved connection. A client begins to listen
// while its heartbeats connect.
const listenTimeout = 2 * time.Second

var (
	errNotListening = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats, on which a client listens, is not there"))
	errMoved = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats was late or was lost: the client listens on the next one"))
)

// listening is the reserved connection on which a session listens. Only the heart chooses it, since
// the heart knows which connection answers.
type listening struct {
	of   *reserved
	ctx  context.Context // ends when the session listens on another connection, or on none
	over context.CancelFunc
}

// listenOn moves the listening to a reserved connection; nil: to none. A listener on the previous
// connection ends.
func (s *Session) listenOn(l *reserved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening.of == l {
		return
	}
	s.listening.over()
	s.listening.of = l
	s.listening.ctx, s.listening.over = context.WithCancel(s.ctx)
	close(s.moved)
	s.moved = make(chan struct{})
}

// listensOn reports whether the session listens on a reserved connection; nil: on none.
func (s *Session) listensOn(l *reserved) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listening.of == l
}

// Listen is that of driver.Upkeep, on the connection of the session's heartbeats. It ends when the
// heartbeats move to another connection.
func (s *Session) Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error {
	on, err := s.awaitListening(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(on.ctx, cancel)()
	if err = on.of.up.Listen(ctx, s.ID, ready, wake); on.ctx.Err() != nil && s.ctx.Err() == nil {
		return errMoved
	}
	return err
}

// awaitListening returns the listening of the session, once there is one.
func (s *Session) awaitListening(ctx context.Context) (listening, error) {
	late := time.NewTimer(listenTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		on, moved := s.listening, s.moved
		s.mu.Unlock()
		if on.of != nil {
			return on, nil
		}
		select {
		case <-moved:
		case <-late.C:
			return listening{}, errNotListening
		case <-ctx.Done():
			return listening{}, ctx.Err()
		}
	}
}
