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

// announce sends a notification through the pool. It waits for a connection for at most
// echoTimeout, since the session does not listen meanwhile.
func (e *engine) announce(ctx context.Context, channel string) error {
	within, cancel := context.WithTimeout(ctx, echoTimeout)
	defer cancel()
	err := e.db.exec(within, statement{sql: "SELECT pg_notify($1, '')", args: []any{channel}})
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return driver.Fail(driver.ErrUnavailable, errors.New("the pool had no connection for a first notification"))
	}
	return err
}

// errUnheard means that a listener did not hear its own notification, on a connection that answers.
var errUnheard = driver.Fail(driver.ErrUnsupported,
	errors.New("LISTEN hears nothing on this connection: a pooler is in between (see postgres.Listen)"))

// errFull means that hints are left out: with a notification the COMMIT of a transaction would
// fail.
var errFull = driver.Fail(driver.ErrUnavailable, errors.New(
	"the server's queue of notifications is full: a session listens and stays in a transaction (pg_stat_activity, "+
		"pg_notification_queue_usage)"))

// check verifies that the connection lives, and that notifications are sent.
func (l *line) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, pgserver.CleanupTimeout)
	defer cancel()
	full := false
	err := l.exec(within, query(postgresdb.NotificationsAreFull, struct{}{}).into(&full, func() {}))
	if err == nil && full {
		return errFull
	}
	return err
}

// listen proves that it receives notifications before it calls ready. Behind a pooler that lends
// connections by the transaction, LISTEN succeeds and no notification arrives. So listen has one
// sent to itself, over another connection.
func (l *line) listen(
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
	if err := l.exec(ctx, statement{sql: "LISTEN " + pgx.Identifier{channel}.Sanitize()}); err != nil {
		return err
	}
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := through.announce(ctx, channel); err != nil {
		return err
	}
	_, heard, err := l.hear(ctx, channel, through.echo)
	if err == nil && !heard {
		// The server sends the pending notifications of a connection before its answer. A
		// notification that has not come with the answer is lost, not late.
		if err = l.check(ctx); err == nil {
			_, heard, err = l.hear(ctx, channel, pgserver.CleanupTimeout)
		}
	}
	switch {
	case err != nil:
		return err
	case !heard:
		return errUnheard
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
			if err := l.check(ctx); err != nil {
				return err
			}
		}
	}
}

// hear waits for a notification on the channel. If a handler of the application has taken it, the
// hint is empty: some notification came.
func (l *line) hear(ctx context.Context, channel string, limit time.Duration) (h protocol.Hint, heard bool, err error) {
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
