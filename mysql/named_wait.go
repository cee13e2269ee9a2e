package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/connlock"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

const (
	// forever is a year. No timeout is ever negative: to MySQL that is for ever, and to MariaDB an
	// error without words.
	forever = 365 * 24 * time.Hour
	// abandoned is how long the server bears with an idle waiter: one whose process is stopped
	// while it is the first of a queue must not stay the first. It is longer than package connlock
	// keeps one that nobody needs.
	abandoned = 10 * time.Second
	// userLockDeadlock is MySQL's deadlock among named locks; MariaDB's is that of rows.
	userLockDeadlock = 3058
	// deadlockPause is the pause, on average, before a waiter that was a deadlock's victim queues
	// again.
	deadlockPause = 50 * time.Millisecond
)

// What became of a wait; NULL: the server failed, or was told to.
const (
	outsideQueue = 1 // its time was over before it was the first
	firstOfQueue = 2
	sawItFree    = 3
)

// namedWaiter is a connlock.Waiter.
type namedWaiter struct {
	namedConn
	owner *namedServer
	tag   mysqlserver.Tag // by which it is found by whoever interrupts it
	nap   time.Duration   // of one statement
	first bool            // has the queue
}

// Waiter opens a connection to wait on.
func (s *namedServer) Waiter(ctx context.Context) (connlock.Waiter[string], error) {
	conn, err := s.open(ctx, abandoned)
	if err != nil {
		return nil, err
	}
	w := &namedWaiter{namedConn: conn, owner: s, tag: mysqlserver.NewTag(), nap: forever}
	if t := conn.traits.ReadTimeout; t > 0 {
		w.nap = (t * 2 / 3).Truncate(time.Second)
	}
	if w.nap == 0 {
		err = driver.Fail(driver.ErrConfig, fmt.Errorf("readTimeout=%v in the DSN ends every wait: make it two seconds or more, or leave it out", conn.traits.ReadTimeout))
	} else {
		err = w.tag.Tie(ctx, w)
	}
	if err != nil {
		mysqlserver.Discard(conn.Conn)
		return nil, err
	}
	return w, nil
}

// Wait takes the queue, and then the lock for no longer than the statement: it wants to see it
// free. Both are one statement, so that a connection whose client has gone does not stay the first
// for longer than it takes to answer.
func (w *namedWaiter) Wait(ctx context.Context, key string, _ bool) error {
	for {
		seconds := int64(w.nap / time.Second)
		text := fmt.Sprintf("CASE GET_LOCK('%s', %d) WHEN 1 THEN %d + RELEASE_LOCK('%[1]s') WHEN 0 THEN %[4]d END", key, seconds, sawItFree-1, firstOfQueue)
		if !w.first {
			text = fmt.Sprintf("CASE GET_LOCK('%s', %d) WHEN 1 THEN %s WHEN 0 THEN %d END", queueKey(key), seconds, text, outsideQueue)
		}
		outcome, err := w.ask(ctx, "SELECT "+text)
		if err == nil && outcome.Int64 >= firstOfQueue {
			w.first = true
		}
		switch n := mysqlserver.Number(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case n == userLockDeadlock || n != 0 && errors.Is(mysqlserver.Interpret(err), driver.ErrRetry):
			// None of ours waits while it holds what another waits for; somebody's own use of these
			// names does.
			if err := w.startAgain(ctx, key); err != nil {
				return err
			}
		case err != nil:
			return mysqlserver.Interpret(err)
		case !outcome.Valid:
			return driver.Fail(driver.ErrUnavailable, errors.New("the server answered GET_LOCK with NULL: it failed, for want of memory or since it was killed"))
		case outcome.Int64 == sawItFree:
			return nil
		}
	}
}

// ask runs a statement that may wait, and interrupts it in the server when ctx ends. The driver
// alone would close the connection, on whose other end the server would wait on for up to a second,
// in the way of others.
func (w *namedWaiter) ask(ctx context.Context, text string) (outcome sql.NullInt64, err error) {
	if err := ctx.Err(); err != nil {
		return outcome, err
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended, killed := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		w.interruptUntil(ended)
		cancel()
	})
	err = w.QueryRowContext(own, text).Scan(&outcome)
	close(ended)
	if !stop() {
		<-killed
	}
	return outcome, err
}

// interruptUntil interrupts the statement again and again, since a KILL that comes before it is
// lost, until it has ended or there is no time left.
func (w *namedWaiter) interruptUntil(ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), mysqlserver.CloseTimeout)
	defer cancel()
	for {
		_ = w.owner.interrupt(ctx, w.tag)
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(mysqlserver.KillInterval):
		}
	}
}

// startAgain pauses outside the queue, which the statement that failed may have taken or not.
func (w *namedWaiter) startAgain(ctx context.Context, key string) error {
	w.first = false
	if _, err := w.ExecContext(ctx, "DO RELEASE_LOCK('"+queueKey(key)+"')"); err != nil {
		return mysqlserver.Interpret(err)
	}
	select {
	case <-time.After(deadlockPause/2 + mathrand.N(deadlockPause)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave leaves the queue.
func (w *namedWaiter) Leave(ctx context.Context, key string) error {
	w.first = false
	var gave sql.NullInt64
	err := w.QueryRowContext(ctx, "SELECT RELEASE_LOCK('"+queueKey(key)+"')").Scan(&gave)
	switch {
	case err != nil:
		return mysqlserver.Interpret(err)
	case gave.Int64 != 1:
		return driver.Fail(driver.ErrUnavailable, errors.New("something unlocked the queue on the waiter's connection"))
	}
	return nil
}

// Close ends the connection. A statement that still runs on it ends too: the server looks once a
// second whether whoever waits for a named lock is still there.
func (w *namedWaiter) Close() { mysqlserver.Discard(w.Conn) }
