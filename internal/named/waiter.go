package named

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

const (
	// forever is a year. No timeout is ever negative: to MySQL a negative timeout means no limit,
	// and to MariaDB it is an error without a message.
	forever = 365 * 24 * time.Hour
	// abandoned is the time for which the server keeps the connection of an idle waiter: a process
	// that is stopped while its waiter is the first of a queue must not stay the first. It is
	// longer than package sessionlock keeps an idle waiter.
	abandoned = 10 * time.Second
	// userLockDeadlock is the number of MySQL's deadlock among named locks. MariaDB's is the number
	// of a deadlock among rows.
	userLockDeadlock = 3058
	// deadlockPause is the pause, on average, before a waiter that was a deadlock's victim queues
	// again.
	deadlockPause = 50 * time.Millisecond
)

// Outcomes of a wait. NULL: the server failed, or the statement was killed.
const (
	outsideQueue = 1 // the time passed before the waiter was the first
	firstOfQueue = 2
	sawItFree    = 3
)

// waiter is a sessionlock.Waiter.
type waiter struct {
	reserved
	owner *server
	tag   mysqlserver.Tag // a KILL finds the waiter by it
	nap   time.Duration   // the longest wait of one statement
	first bool            // the waiter has the queue
}

// Waiter opens a connection to wait on.
func (s *server) Waiter(ctx context.Context) (sessionlock.Waiter[string], error) {
	conn, err := s.open(ctx, abandoned)
	if err != nil {
		return nil, err
	}
	w := &waiter{reserved: conn, owner: s, tag: mysqlserver.NewTag(), nap: forever}
	if t := conn.traits.ReadTimeout; t > 0 {
		w.nap = (t * 2 / 3).Truncate(time.Second)
	}
	if w.nap == 0 {
		err = driver.Fail(driver.ErrConfig,
			fmt.Errorf("readTimeout=%v in the DSN ends every wait: make it two seconds or more, or leave it out",
				conn.traits.ReadTimeout))
	} else {
		err = w.tag.Tie(ctx, w)
	}
	if err != nil {
		mysqlserver.Discard(conn.Conn)
		return nil, err
	}
	return w, nil
}

// Wait takes the queue, and then the lock only for the length of the statement: it only has to see
// the lock free. Both are one statement, so that a connection whose client has gone does not stay
// the first of the queue for longer than the answer takes.
func (w *waiter) Wait(ctx context.Context, key string, _ bool) error {
	for {
		seconds := int64(w.nap / time.Second)
		text := fmt.Sprintf("CASE GET_LOCK('%s', %d) WHEN 1 THEN %d + RELEASE_LOCK('%[1]s') WHEN 0 THEN %[4]d END", key,
			seconds, sawItFree-1, firstOfQueue)
		if !w.first {
			text = fmt.Sprintf("CASE GET_LOCK('%s', %d) WHEN 1 THEN %s WHEN 0 THEN %d END", queueKey(key), seconds,
				text, outsideQueue)
		}
		outcome, err := w.ask(ctx, "SELECT "+text)
		if err == nil && outcome.Int64 >= firstOfQueue {
			w.first = true
		}
		switch n := mysqlserver.Number(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case n == userLockDeadlock || n != 0 && errors.Is(mysqlserver.Interpret(err), driver.ErrRetry):
			// No client of dblock waits while it holds a lock that another waits for. Other users
			// of these names may.
			if err := w.startAgain(ctx, key); err != nil {
				return err
			}
		case err != nil:
			return mysqlserver.Interpret(err)
		case !outcome.Valid:
			return driver.Fail(driver.ErrUnavailable,
				errors.New("the server answered GET_LOCK with NULL: it failed, for want of memory or since it was "+
					"killed"))
		case outcome.Int64 == sawItFree:
			return nil
		}
	}
}

// ask runs a statement that may wait, and interrupts it in the server when ctx ends. The driver
// alone would close the connection, while the server would go on waiting for up to a second and
// block others.
func (w *waiter) ask(ctx context.Context, text string) (outcome sql.NullInt64, err error) {
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

// interruptUntil interrupts the statement repeatedly, until it has ended or CloseTimeout has
// passed: a KILL before the statement is lost.
func (w *waiter) interruptUntil(ended <-chan struct{}) {
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

// startAgain pauses outside the queue. The failed statement may or may not have taken it.
func (w *waiter) startAgain(ctx context.Context, key string) error {
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
func (w *waiter) Leave(ctx context.Context, key string) error {
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

// Close ends the connection. A statement that still runs on it ends too: the server checks once a
// second whether the client of a wait for a named lock is still there.
func (w *waiter) Close() { mysqlserver.Discard(w.Conn) }
