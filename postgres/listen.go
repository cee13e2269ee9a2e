package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// echoTimeout bounds the wait of a listener for its own first notification.
	echoTimeout = 2 * time.Second
	// pingInterval is the time after which a silent listener checks its connection.
	pingInterval = 30 * time.Second
)

// Listen listens on the connection itself, or on a separate one if the option Listen was given.
func (u upkeep) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	e, l := u.of, u.conn
	if e.direct != nil {
		var err error
		if l, err = e.direct.connect(ctx, e.appName()); err != nil {
			return pgserver.Interpret(err)
		}
		defer l.close()
	}
	err := l.listen(ctx, "dblock_"+session, e, ready, wake)
	if e.direct != nil && errors.Is(err, errUnheard) {
		return driver.ErrDeaf
	}
	return pgserver.Interpret(err)
}

// overPool runs a statement on a connection of the pool. It waits for one for at most echoTimeout,
// since the session does not listen meanwhile.
func (e *engine) overPool(ctx context.Context, s statement) error {
	within, cancel := context.WithTimeout(ctx, echoTimeout)
	defer cancel()
	err := e.db.exec(within, s)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return driver.Fail(driver.ErrUnavailable, errors.New("the pool had no connection for a first notification"))
	}
	return err
}

// errUnheard means that a listener did not hear its own notification, or would not, on a connection
// that answers.
var errUnheard = driver.Fail(driver.ErrUnsupported,
	errors.New("LISTEN hears nothing on this connection: a pooler is in between (see postgres.Listen)"))

// errFull means that hints are left out: with a notification the COMMIT of a transaction would
// fail.
var errFull = driver.Fail(driver.ErrUnavailable, errors.New(
	"the server's queue of notifications is full: a session listens and stays in a transaction (pg_stat_activity, "+
		"pg_notification_queue_usage)"))

// check verifies that the connection lives, and that notifications are sent. It returns the process
// that serves the connection now.
func (l *sharedConn) check(ctx context.Context) (backend uint32, err error) {
	within, cancel := context.WithTimeout(ctx, pgserver.CleanupTimeout)
	defer cancel()
	var row postgresdb.NotificationsAreFullRow
	err = l.exec(within, query(postgresdb.NotificationsAreFull, struct{}{}).into(&row, func() {}))
	if err == nil && row.IsFull {
		err = errFull
	}
	return uint32(row.Backend), err
}

// probes is the number of attempts to find a pooler out. The first one detects an idle pooler; on a
// busy one each attempt is a new chance.
const probes = 3

// dedicated returns errUnheard if a pooler lends the connection's server connection to others, too.
// A LISTEN would stay behind there, and notifications would reach whoever is lent it next.
//
// Such a pooler moves the connection from one statement to the next, or a statement over the pool
// gets the server connection that served this one before. A pooler of sessions does neither. Both
// name a process of their own when they accept a connection, so that without a pooler one statement
// is enough.
func (l *sharedConn) dedicated(ctx context.Context, through *engine) error {
	mine, err := l.check(ctx)
	if err != nil || mine == l.conn.PgConn().PID() {
		return err
	}
	for range probes {
		again, err := l.check(ctx)
		if err != nil {
			return err
		}
		var theirs uint32
		err = through.overPool(ctx, statement{sql: "SELECT pg_backend_pid()"}.into(&theirs, func() {}))
		switch {
		case err != nil:
			return err
		case again != mine || theirs == mine:
			return errUnheard
		}
	}
	return nil
}

// listen calls ready once it has proved that it receives notifications. It stops listening if it
// receives none, unless the connection is broken.
func (l *sharedConn) listen(
	ctx context.Context, channel string, through *engine, ready func(), wake func(protocol.Hint),
) error {
	if l.conn == nil {
		return driver.ErrCannotListen
	}
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.interrupt()
	})()
	if err := l.dedicated(ctx, through); err != nil {
		return err
	}
	if err := l.prove(ctx, channel, through); err != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
		defer cancel()
		_ = l.exec(within, statement{sql: "UNLISTEN " + pgx.Identifier{channel}.Sanitize()})
		return err
	}
	ready()
	for {
		h, heard, err := l.hear(ctx, channel, pingInterval)
		switch {
		case err != nil:
			return err
		case heard:
			wake(h)
		default:
			if _, err := l.check(ctx); err != nil {
				return err
			}
		}
	}
}

// prove listens, and has a notification sent to itself over another connection. Behind a pooler
// LISTEN may succeed and no notification arrive.
func (l *sharedConn) prove(ctx context.Context, channel string, through *engine) error {
	if err := l.exec(ctx, statement{sql: "LISTEN " + pgx.Identifier{channel}.Sanitize()}); err != nil {
		return err
	}
	if err := through.overPool(ctx, statement{sql: "SELECT pg_notify($1, '')", args: []any{channel}}); err != nil {
		return err
	}
	_, heard, err := l.hear(ctx, channel, through.echo)
	if err == nil && !heard {
		// The server sends the pending notifications of a connection before its answer. A
		// notification that has not come with the answer is lost, not late.
		if _, err = l.check(ctx); err == nil {
			_, heard, err = l.hear(ctx, channel, pgserver.CleanupTimeout)
		}
	}
	if err == nil && !heard {
		err = errUnheard
	}
	return err
}

// hear waits for a notification on the channel. If a handler of the application has taken it, the
// hint is empty: some notification came.
func (l *sharedConn) hear(
	ctx context.Context, channel string, limit time.Duration,
) (h protocol.Hint, heard bool, err error) {
	for until := time.Now().Add(limit); time.Now().Before(until); {
		n, err := l.wait(ctx, until)
		switch {
		case ctx.Err() != nil:
			return h, false, ctx.Err()
		case errors.Is(err, errSilent):
		case err != nil:
			return h, false, err
		case n == nil:
			return h, true, nil
		case n.Channel == channel: // the application's hooks may listen on other channels
			return hint(n.Payload), true, nil
		}
	}
	return h, false, nil
}

// hint reads a payload: an attempt and, if the payload describes the whole grant, its token (for a
// cohort, its first and last token) and whether there are waiters. Any other payload is an
// unspecific hint.
func hint(payload string) protocol.Hint {
	fields := strings.Fields(payload)
	if len(fields) == 0 {
		return protocol.Hint{}
	}
	h := protocol.Hint{Attempt: fields[0]}
	if len(fields) < 3 || len(fields) > 4 {
		return h
	}
	n := len(fields)
	first, err := strconv.ParseInt(fields[1], 10, 64)
	token, unreadable := strconv.ParseInt(fields[n-2], 10, 64)
	waiters, uncounted := strconv.Atoi(fields[n-1])
	if err == nil && unreadable == nil && uncounted == nil {
		h.Grant = protocol.Grant{First: first, Token: token, Contended: waiters > 0}
	}
	return h
}
