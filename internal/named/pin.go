package named

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

const (
	// peekInterval and askInterval are the pauses between two looks at the pinned connection.
	peekInterval = 250 * time.Millisecond
	askInterval  = 500 * time.Millisecond
	// askTimeout bounds the server's answer to a statement that costs it nothing.
	askTimeout = 10 * time.Second
	// together bounds the operations that travel as columns of one statement.
	together = 200
)

// pin is a sessionlock.Pin. It is used by the goroutine that runs the operations, and by waiters
// whose statement has to be interrupted: by one at a time, which has the turn.
type pin struct {
	reserved
	owner *server
	id    int64
	turn  chan struct{}
	ctx   context.Context // ends with Close
	stop  context.CancelFunc
}

// Pin opens the connection that has the locks.
func (s *server) Pin(ctx context.Context) (sessionlock.Pin[string], error) {
	conn, err := s.open(ctx, forever)
	if err != nil {
		return nil, err
	}
	p := &pin{reserved: conn, owner: s, turn: make(chan struct{}, 1)}
	if p.id, err = conn.prove(ctx); err != nil {
		mysqlserver.Discard(conn.Conn)
		return nil, err
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	s.pin.Store(p)
	return p, nil
}

// prove takes a lock and looks for it with the next statement, which detects a proxy that spreads
// statements over connections.
func (c reserved) prove(ctx context.Context) (id int64, err error) {
	probe := "'" + plainPrefix + strings.ToLower(rand.Text()) + queueSuffix + "'" // not the key of any name
	var got, ours, gave sql.NullInt64
	var again int64
	if err = c.QueryRowContext(ctx, "SELECT CONNECTION_ID(), GET_LOCK("+probe+", 0)").Scan(&id, &got); err == nil {
		err = c.QueryRowContext(ctx, "SELECT CONNECTION_ID(), IS_USED_LOCK("+probe+"), RELEASE_LOCK("+probe+
			")").Scan(&again, &ours, &gave)
	}
	switch {
	case err != nil:
		return 0, mysqlserver.Interpret(err)
	case got.Int64 != 1:
		return 0, driver.Fail(driver.ErrConfig, mysqlserver.ErrNoNamedLocks)
	case again != id || ours.Int64 != id || gave.Int64 != 1:
		return 0, driver.Fail(driver.ErrConfig, errMultiplexed)
	}
	return id, nil
}

// enter waits for the turn, unless ctx ends first.
func (p *pin) enter(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pin) leave() { <-p.turn }

// Close ends the connection.
func (p *pin) Close() {
	p.owner.pin.CompareAndSwap(p, nil)
	p.stop()
	mysqlserver.Discard(p.Conn)
}

// Watch checks the socket, or asks the server.
func (p *pin) Watch(ctx context.Context) error {
	interval, look := askInterval, p.ask
	if p.traits.Peeks {
		interval, look = peekInterval, p.reserved.peek
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if p.enter(ctx) != nil {
			return nil
		}
		err := look(context.WithoutCancel(ctx))
		p.leave()
		if err != nil {
			return fmt.Errorf("the server or something on the way to it closed it: %w", err)
		}
	}
}

// ask runs a statement and not a ping, which a driver that wraps another may leave out.
func (p *pin) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := p.ExecContext(ctx, "DO 0")
	return err
}

// Do makes each operation a column of a statement; columns are evaluated from left to right. An
// operation that does not wait checks that the queue is free, without joining it. Keys need no
// quoting.
func (p *pin) Do(ctx context.Context, ops []*sessionlock.Op[string]) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	for len(ops) > 0 {
		n := min(len(ops), together)
		if err := p.batch(ctx, ops[:n]); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

func (p *pin) batch(ctx context.Context, ops []*sessionlock.Op[string]) error {
	text := []byte("SELECT CONNECTION_ID(), @@GLOBAL.read_only")
	var id int64
	var readOnly string
	answers := make([]sql.NullInt64, len(ops))
	into := []any{&id, &readOnly}
	for i, op := range ops {
		switch op.Kind {
		case sessionlock.Try:
			text = fmt.Appendf(text, ", IF(IS_FREE_LOCK('%s'), GET_LOCK('%s', 0), 0)", queueKey(op.Key), op.Key)
		case sessionlock.Take:
			text = fmt.Appendf(text, ", GET_LOCK('%s', 0)", op.Key)
		case sessionlock.Give:
			text = fmt.Appendf(text, ", RELEASE_LOCK('%s')", op.Key)
		}
		into = append(into, &answers[i])
	}
	if err := p.QueryRowContext(ctx, string(text)).Scan(into...); err != nil {
		return err
	}
	switch {
	case id != p.id:
		return driver.Fail(driver.ErrConfig, errMultiplexed)
	case readOnly != "0" && readOnly != "OFF":
		return driver.Fail(driver.ErrReadOnly, errReplica)
	}
	for i, op := range ops {
		op.OK = answers[i].Int64 == 1
		if !answers[i].Valid && op.Kind != sessionlock.Give {
			op.Err = driver.Fail(driver.ErrUnavailable,
				errors.New("the server answered GET_LOCK with NULL: it failed, for want of memory or since it was "+
					"killed"))
		}
	}
	return nil
}

// interrupt ends the statement of the waiter with a tag. It uses the pinned connection, since the
// pool may be exhausted, or the pool if there is no pinned connection.
func (s *server) interrupt(ctx context.Context, waiter mysqlserver.Tag) error {
	if p := s.pin.Load(); p != nil {
		if err := p.enter(ctx); err != nil {
			return err
		}
		// Not ctx: at its end the driver would close the pinned connection.
		within, cancel := context.WithTimeout(p.ctx, askTimeout)
		err := mysqlserver.Kill(within, p, "QUERY", string(waiter))
		cancel()
		p.leave()
		if err == nil || mysqlserver.Number(err) != 0 {
			return err
		}
	}
	return mysqlserver.Kill(ctx, s.db, "QUERY", string(waiter))
}
