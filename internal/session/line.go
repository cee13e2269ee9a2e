package session

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// lineTimeout is how long Listen waits for a reserved connection. A client begins to listen while
// its heartbeats connect.
const lineTimeout = 2 * time.Second

var (
	errNoLine = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats, on which a client listens, is not there"))
	errOverLine = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats was late or was lost: the client listens on the next one"))
)

// line is the reserved connection that a session listens on. Only the heart decides which one that
// is: it knows which one answers.
type line struct {
	of   *reserved
	ctx  context.Context // ends when the session listens on another one, or on none
	over context.CancelFunc
}

// listenOn makes a reserved connection the line; nil: there is none any more. A listener on the
// line before ends.
func (s *Session) listenOn(l *reserved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line.of == l {
		return
	}
	s.line.over()
	s.line.of = l
	s.line.ctx, s.line.over = context.WithCancel(s.ctx)
	close(s.relined)
	s.relined = make(chan struct{})
}

// onLine reports whether the session listens on a reserved connection, or is to.
func (s *Session) onLine(l *reserved) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line.of == l
}

// Listen is as of driver.Upkeep, on the connection of the session's heartbeats. It ends when these
// go over another one.
func (s *Session) Listen(ctx context.Context, ready func(), wake func(driver.Hint)) error {
	on, err := s.awaitLine(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(on.ctx, cancel)()
	if err = on.of.up.Listen(ctx, s.ID, ready, wake); on.ctx.Err() != nil && s.ctx.Err() == nil {
		return errOverLine
	}
	return err
}

func (s *Session) awaitLine(ctx context.Context) (line, error) {
	late := time.NewTimer(lineTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		on, relined := s.line, s.relined
		s.mu.Unlock()
		if on.of != nil {
			return on, nil
		}
		select {
		case <-relined:
		case <-late.C:
			return line{}, errNoLine
		case <-ctx.Done():
			return line{}, ctx.Err()
		}
	}
}
