package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// longestNap is the time for which one statement of a listener sleeps, unless the DSN has a
	// shorter readTimeout. A longer nap would save statements, but it also bounds the delay of a
	// wake-up that did not get through.
	longestNap = 4 * time.Second
	// dozing is the sleep of a statement that names tables. LOCK TABLES and DDL on these tables
	// wait for it, and all writers wait behind FLUSH TABLES WITH READ LOCK.
	dozing = 100 * time.Millisecond
	// proofTimeout bounds the wait of a listener for its own first KILL.
	proofTimeout = 2 * time.Second
	// replyTimeout is the time that a listener's statement may take in addition to its sleep. After
	// it the connection counts as broken.
	replyTimeout = 5 * time.Second
	// maxKnown is the number of grants that a listener keeps in memory before it marks them as
	// known in the tables.
	maxKnown = 64
)

// wakeUp ends the sleep of the sessions' listeners. It is a hint: a listener that was not reached
// finds its grant before it sleeps again, so errors are ignored. wakeUp outlives ctx, because the
// grant does.
//
// One statement looks the connection up and interrupts it, so no id can grow stale on its way. In
// the server a moment passes between the two steps, which is safe. A server does not reuse an id
// while it is up, and a listener's connection never returns to its pool, so the id of a listener
// never names any other connection.
func (e *engine) wakeUp(ctx context.Context, conn *sql.Conn, sessions []string) {
	if e.server().facts().deaf != nil {
		return
	}
	woken := make(map[string]bool, len(sessions))
	for _, session := range sessions {
		if woken[session] {
			continue
		}
		woken[session] = true
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), mysqlserver.CloseTimeout)
		_ = mysqlserver.Kill(within, conn, "QUERY", session)
		cancel()
	}
}

// Listen waits on the server until a grant to the session interrupts it. It uses a connection of
// its own, which holds the session's named lock. On MySQL it sleeps; on MariaDB it waits for the
// sleep lock that the heartbeats' connection holds. Once ctx has ended, Listen returns its error,
// whatever the driver says of the connection that it has closed.
func (u upkeep) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	err := u.listen(ctx, session, ready, wake)
	if over := ctx.Err(); over != nil {
		return over
	}
	return mysqlserver.Interpret(err)
}

func (u upkeep) listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	e := u.of
	if deaf := e.server().facts().deaf; deaf != nil {
		return deaf
	}
	if err := e.side.LeavesToListen(e.db.Stats().MaxOpenConnections); err != nil {
		return err
	}
	conn, err := e.reserve(ctx, idleTimeout, connpool.Listening)
	if err != nil {
		return err
	}
	defer e.discard(conn)
	l := &listener{engine: e, conn: conn, session: session, sleepLock: u.sleepLock, prepared: e.prepared.onConn(conn),
		nap: e.nap}
	if err := conn.Raw(func(raw any) error {
		l.nap = min(e.nap, napWithin(mysqlserver.TraitsOf(raw).ReadTimeout))
		return nil
	}); err != nil {
		return err
	}
	l.q = mysqldb.New(l.prepared)
	if err := l.open(ctx, u.deaf); err != nil {
		return err
	}
	if _, _, err := l.news(ctx); err != nil { // no request waits for an earlier grant
		return err
	}
	ready()
	for busy := true; ; {
		for _, tidy := range []func(context.Context) (cut bool, err error){l.untie, l.acknowledge} {
			cut, err := tidy(ctx)
			if err != nil {
				return err
			}
			if cut {
				wake(protocol.Hint{})
			}
		}
		outcome, looked := int64(slept), true
		if busy {
			outcome, err = l.doze(ctx)
		} else {
			outcome, looked, err = l.rest(ctx, wake)
		}
		if err != nil {
			return err
		}
		busy = outcome != slept
		if !busy && looked && len(l.known) <= maxKnown {
			continue
		}
		if err := l.tell(ctx, outcome == interrupted, wake); err != nil {
			return err
		}
	}
}

// tell calls wake with the news. It adds an empty hint if a KILL has hit the statement that reads
// the news, or if a sleep was interrupted without news.
func (l *listener) tell(ctx context.Context, interrupted bool, wake func(protocol.Hint)) error {
	hints, late, err := l.news(ctx)
	if err != nil {
		return err
	}
	for _, h := range hints {
		wake(h)
	}
	if late || interrupted && len(hints) == 0 {
		wake(protocol.Hint{})
	}
	return nil
}

// napWithin returns the length of a sleep on a connection whose reads time out: two thirds of
// readTimeout, so that a third remains for the answer. 0: reads do not time out, or that is not
// known.
func napWithin(readTimeout time.Duration) time.Duration {
	if readTimeout == 0 {
		return longestNap
	}
	return min(longestNap, readTimeout*2/3)
}

// listener runs statements on one connection. A KILL QUERY that was meant for the sleep may
// interrupt any of them; the statement is then repeated.
type listener struct {
	engine    *engine
	conn      *sql.Conn
	session   string
	sleepLock string // the lock it waits for on MariaDB; "": it sleeps
	nap       time.Duration
	prepared  *prepared
	q         *mysqldb.Queries
	known     map[string]grant // by attempt: the grants that wake was called with
	tag       mysqlserver.Tag  // of the latest sleep without tables; "": untied
}

// open takes the named lock and proves that a KILL from the pool gets through. It does not if the
// user lacks the privilege, or if a proxy spreads the pool over several servers.
func (l *listener) open(ctx context.Context, deaf error) error {
	cluster, err := variable(ctx, l.conn, "wsrep_on", "wsrep_on")
	if err != nil {
		return err
	}
	if cluster == "ON" {
		return driver.Fail(driver.ErrUnsupported, errors.New("a Galera cluster has no named locks"))
	}
	if err := driver.Join(l.engine.wakes(), deaf); err != nil {
		return err
	}
	locked, err := l.lock(ctx, 0)
	if err == nil && !locked {
		// A broken connection of this session may still sleep on the server.
		_ = mysqlserver.Kill(ctx, l.engine.db, "CONNECTION", l.session)
		locked, err = l.lock(ctx, 1)
	}
	if err != nil {
		return err
	}
	if !locked {
		return driver.Fail(driver.ErrUnavailable,
			errors.New("an earlier listener of this session still holds its named lock"))
	}
	ended, killing := make(chan struct{}), make(chan error, 1)
	go func() { killing <- l.interruptUntil(ended, l.engine.proof) }()
	outcome, err := l.sleep(ctx, l.engine.proof, func(ctx context.Context) (outcome int64, err error) {
		if l.sleepLock != "" {
			err = l.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT COALESCE(GET_LOCK('%s', %f), 2)", l.sleepLock,
				l.engine.proof.Seconds())).Scan(&outcome)
			return checkSleepLock(outcome, err)
		}
		err = l.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT 2 * SLEEP(%f)", l.engine.proof.Seconds())).Scan(&outcome)
		return outcome, err
	})
	close(ended)
	cause := <-killing
	switch {
	case err != nil || outcome == interrupted:
		return err
	case cause == nil:
		return driver.Fail(driver.ErrUnsupported,
			errors.New("KILL QUERY does not reach the listener: is a proxy in between?"))
	case errors.Is(cause, driver.ErrUnsupported):
		return cause
	}
	return driver.Fail(driver.ErrUnavailable, cause) // proves nothing about KILL: try again
}

func (l *listener) lock(ctx context.Context, seconds int) (bool, error) {
	var locked sql.NullBool
	text, args := l.prepared.literal("SELECT GET_LOCK(?, ?)", []any{"dblock:" + l.session, seconds})
	err := l.conn.QueryRowContext(ctx, text, args...).Scan(&locked)
	return locked.Bool, err
}

// Outcomes of a sleep; see queries/mysql/unseen.sql.
const (
	slept         = 0
	sleepLockFree = 1
	interrupted   = 2
)

// doze sleeps for a moment, unless there is a grant that wake was not called with.
func (l *listener) doze(ctx context.Context) (outcome int64, err error) {
	known := strings.Join(slices.Collect(maps.Keys(l.known)), ",")
	length := min(l.nap, dozing)
	return l.sleep(ctx, length, func(ctx context.Context) (int64, error) {
		if l.sleepLock != "" {
			outcome, err := l.q.SleepAtLock(ctx, mysqldb.SleepAtLockParams{
				Session: l.session, Known: known, SleepLock: l.sleepLock, Micros: length.Microseconds(),
			})
			return checkSleepLock(outcome, err)
		}
		return l.q.SleepUntilUnseen(ctx, mysqldb.SleepUntilUnseenParams{Session: l.session, Known: known,
			Micros: length.Microseconds()})
	})
}

// sleep runs a statement that sleeps. When a context ends, the driver closes the connection, but
// the server would sleep on and keep the named lock. So sleep interrupts the statement instead.
func (l *listener) sleep(
	ctx context.Context, length time.Duration, statement func(context.Context) (outcome int64, err error),
) (outcome int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), length+replyTimeout)
	defer cancel()
	ended, killed := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		_ = l.interruptUntil(ended, mysqlserver.CloseTimeout)
		cancel()
	})
	outcome, err = statement(own)
	close(ended)
	if !stop() {
		<-killed
		return 0, ctx.Err()
	}
	if mysqlserver.WasKilled(err) {
		return interrupted, nil
	}
	return outcome, unanswered(ctx, err)
}

// interruptUntil interrupts the listener's statement repeatedly until the statement has ended,
// limit has passed, or the server refuses (ErrUnsupported). It returns nil if the last KILL
// succeeded, whichever statement it hit.
func (l *listener) interruptUntil(ended <-chan struct{}, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		err := mysqlserver.Kill(ctx, l.engine.db, "QUERY", l.session)
		switch n := mysqlserver.Number(err); {
		case n == mysqlserver.NoSuchThread:
			err = nil
		case n != 0 && mysqlserver.Kind(n) == nil:
			return driver.Fail(driver.ErrUnsupported, err)
		}
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(mysqlserver.KillInterval):
		}
	}
}

// unanswered distinguishes the end of the listener's own timeout from the end of ctx.
func unanswered(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return driver.Fail(driver.ErrUnavailable, errors.New("the listener's statement was not answered"))
	}
	return err
}
