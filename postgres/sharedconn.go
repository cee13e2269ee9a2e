package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// sharedConn is a reserved connection that a session's heartbeats and its listener share. The
// listener waits on the connection for the server. A statement interrupts the wait and uses the
// connection next.
type sharedConn struct {
	on   connection
	conn *pgx.Conn     // the underlying connection; nil: it cannot listen
	turn chan struct{} // full while a goroutine uses the connection

	steps int64 // of Claims over all names; the goroutine of the heartbeats counts them

	mu      sync.Mutex // guards the fields below
	wanted  int        // statements that wait for their turn
	waiting bool       // the listener has its turn and waits for the server
}

func newSharedConn(on connection) *sharedConn {
	return &sharedConn{on: on, conn: on.listenable(), turn: make(chan struct{}, 1)}
}

func (l *sharedConn) exec(ctx context.Context, s statement) error {
	return l.inTurn(ctx, func() error { return l.on.exec(ctx, s) })
}

func (l *sharedConn) transact(ctx context.Context, s ...statement) error {
	return l.inTurn(ctx, func() error { return l.on.transact(ctx, s...) })
}

func (l *sharedConn) listenable() *pgx.Conn { return l.conn }

// close does not wait for a statement that gets no answer: it breaks the connection.
func (l *sharedConn) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.CleanupTimeout)
	defer cancel()
	err := l.inTurn(ctx, l.on.close)
	if ctx.Err() != nil && l.conn != nil {
		_ = l.conn.PgConn().Conn().Close()
		err = l.on.close()
	}
	return err
}

// inTurn runs do when nothing else uses the connection.
func (l *sharedConn) inTurn(ctx context.Context, do func() error) error {
	l.want(1)
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		l.want(-1)
		return do()
	case <-ctx.Done():
		l.want(-1)
		return ctx.Err()
	}
}

// want counts the statements that wait for their turn, and interrupts the listener for the first.
func (l *sharedConn) want(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted += more; more > 0 {
		l.interrupt()
	}
}

// interrupt ends a wait of the listener. MUST be called with mu locked.
func (l *sharedConn) interrupt() {
	if l.waiting {
		_ = l.conn.PgConn().Conn().SetReadDeadline(time.Unix(1, 0))
	}
}

// errSilent is the end of a wait without a notification: until has passed, or a statement has
// interrupted the wait.
var errSilent = errors.New("nothing was heard")

// wait waits for a notification until a time. The notification is nil if a handler of the
// application has taken it.
func (l *sharedConn) wait(ctx context.Context, until time.Time) (*pgconn.Notification, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := l.beginWait(ctx, until); err != nil {
		return nil, err
	}
	n, err := l.conn.WaitForNotification(context.Background())
	if broken := l.endWait(); broken == nil && pgconn.Timeout(err) {
		err = errSilent
	}
	return n, err
}

func (l *sharedConn) beginWait(ctx context.Context, until time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.wanted > 0:
		return errSilent
	case l.conn.IsClosed():
		return driver.Fail(driver.ErrUnavailable, errors.New("the connection of the heartbeats was closed"))
	}
	// Without a deadline a heartbeat could wait for the listener for ever.
	if err := l.conn.PgConn().Conn().SetReadDeadline(until); err != nil {
		return driver.Fail(driver.ErrUnsupported, err)
	}
	l.waiting = true
	return nil
}

func (l *sharedConn) endWait() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	return l.conn.PgConn().Conn().SetReadDeadline(time.Time{})
}
