package session

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// lineTimeout limits how long Listen waits for a reserved connection. A client begins to listen
// while its heartbeats connect.
const lineTimeout = 2 * time.Second

var (
	errNoLine = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats, on which a client listens, is not there"))
	errOverLine = driver.Fail(driver.ErrUnavailable,
		errors.New("the connection of the heartbeats was late or was lost: the client listens on the next one"))
)

// line is the reserved connection on which a session listens. Only the heart chooses it, since the
// heart knows which connection answers.
type line struct {
	of   *reserved
	ctx  context.Context // ends when the session listens on another connection, or on none
	over context.CancelFunc
}

// listenOn makes a reserved connection the line; nil: there is no line. A listener on the previous
// line ends.
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

// onLine reports whether a reserved connection is the line; nil: whether there is no line.
func (s *Session) onLine(l *reserved) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line.of == l
}

// Listen is that of driver.Upkeep, on the connection of the session's heartbeats. It ends when the
// heartbeats move to another connection.
func (s *Session) Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error {
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
