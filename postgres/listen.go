package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// echoTimeout is how long a listener waits for its own first notification.
	echoTimeout = 2 * time.Second
	// pingInterval is how often a silent listener asks whether its connection still lives.
	pingInterval = 30 * time.Second
	// listeningPool is the smallest pool of database/sql that a listener takes a connection from:
	// heartbeats have one, work that may wait for a row another, all other work a third.
	listeningPool = 4
)

// listen listens on a connection of its own beside the pool. A handler of the application's for
// notifications gets none of them.
func (d pgxDB) listen(ctx context.Context, app, channel string, ready func(), wake func(driver.Hint)) error {
	conn, err := pgserver.Connect(ctx, d.pool.Config(), app, func(c *pgx.ConnConfig) { c.OnNotification = nil })
	if err != nil {
		return err
	}
	defer pgserver.Close(conn)
	return listenOn(ctx, conn, channel, d.exec, ready, wake)
}

// listen listens on a connection of the pool, where that is one of pgx. The connection is closed
// afterwards: the pool gets none back that still listens, or in which something is left unread.
func (d sqlDB) listen(ctx context.Context, app, channel string, ready func(), wake func(driver.Hint)) error {
	reserved, conn, err := d.listenConn(ctx)
	if err != nil {
		return err
	}
	listener := sqlConn{reserved}
	defer listener.close()
	if err := listener.setAppName(ctx, app); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { d.watchPool(ctx, cancel) })
	defer watching.Wait()
	defer cancel(nil)
	err = listenOn(ctx, conn, channel, d.announce, ready, wake)
	if starved := context.Cause(ctx); errors.Is(starved, driver.ErrUnavailable) {
		return starved
	}
	return err
}

// watchPool ends a listener that has the connection which the pool lacks: of another client, say,
// whose heartbeats have taken the last one since.
func (d sqlDB) watchPool(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(echoTimeout):
		}
		if _, full := d.full(); full {
			if err := d.announce(ctx, statement{sql: "SELECT 1"}); errors.Is(err, driver.ErrUnavailable) {
				cancel(err)
			}
		}
	}
}

// listenConn reserves a connection of the pool that can listen, and returns pgx's connection below
// it. After an error the connection has gone back to the pool as it came.
//
// pgx's connection is used outside of Raw. That is safe, because database/sql leaves a reserved
// connection alone. Raw would keep the connection's mutex for as long as the listener lives, and
// the Close of every statement that the application has prepared on the connection waits for that.
func (d sqlDB) listenConn(ctx context.Context) (reserved *sql.Conn, conn *pgx.Conn, err error) {
	most := d.db.Stats().MaxOpenConnections
	if most > 0 && most < listeningPool {
		return nil, nil, driver.Fail(driver.ErrUnsupported, fmt.Errorf("the pool allows %d connections, and LISTEN needs %d: see postgres.NewSQL", most, listeningPool))
	}
	if reserved, err = d.db.Conn(ctx); err != nil {
		return nil, nil, err
	}
	_, full := d.full()
	var lent bool
	err = reserved.Raw(func(raw any) error { conn, lent = below(raw); return nil })
	switch {
	case err != nil:
	case conn == nil:
		err = driver.ErrCannotListen
	case lent && most == 0:
		err = driver.Fail(driver.ErrUnsupported, errors.New("LISTEN would keep a connection of a pgxpool whose size is not known here: SetMaxOpenConns tells it (see postgres.NewSQL)"))
	case full:
		err = driver.Fail(driver.ErrUnavailable, errors.New("the pool has only one free connection, which is not kept for LISTEN"))
	default:
		return reserved, conn, nil
	}
	return nil, nil, driver.Join(err, ignoreClosed(reserved.Close()))
}

// below is the connection of pgx below one of database/sql; nil: there is none, or it is hidden.
// lent reports that it is borrowed from a pgxpool.
func below(raw any) (conn *pgx.Conn, lent bool) {
	for range 8 {
		switch c := raw.(type) {
		case interface{ Conn() *pgx.Conn }: // *stdlib.Conn, which is not imported: it registers drivers
			return c.Conn(), isLent(reflect.Indirect(reflect.ValueOf(raw)))
		case interface{ Raw() sqldriver.Conn }: // a wrapper, such as otelsql's
			raw = c.Raw()
		default:
			return nil, false
		}
	}
	return nil, false
}

// isLent reads a private field of stdlib.Conn: only a connection that is borrowed from a pgxpool
// has no configuration. It is also true where there is no such field, which errs on the safe side.
func isLent(conn reflect.Value) bool {
	if conn.Kind() != reflect.Struct {
		return true
	}
	config := conn.FieldByName("connConfig")
	return !config.IsValid() || config.IsZero()
}

// announce is exec with a limit: while the listener waits here for another connection of the pool,
// the one that it has may be the one that everybody else waits for.
func (d sqlDB) announce(ctx context.Context, s statement) error {
	within, cancel := context.WithTimeout(ctx, echoTimeout)
	defer cancel()
	err := d.exec(within, s)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return driver.Fail(driver.ErrUnavailable, errors.New("the pool had no other connection beside the one for LISTEN"))
	}
	return err
}

// listenOn proves that it hears before it says that it is ready: behind a pooler that lends
// connections by the transaction, LISTEN succeeds and nothing ever arrives. So it sends itself a
// notification through the pool, with exec.
func listenOn(ctx context.Context, conn *pgx.Conn, channel string, exec func(context.Context, statement) error, ready func(), wake func(driver.Hint)) error {
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if err := exec(ctx, statement{sql: "SELECT pg_notify($1, '')", args: []any{channel}}); err != nil {
		return err
	}
	if _, err := hear(ctx, conn, channel, echoTimeout); err != nil {
		if ctx.Err() == nil && pgconn.Timeout(err) {
			return driver.Fail(driver.ErrUnsupported, errors.New("LISTEN hears nothing on this connection: a pooler is in between (see postgres.Listen), or it is of another database"))
		}
		return err
	}
	ready()
	for {
		h, err := hear(ctx, conn, channel, pingInterval)
		switch {
		case err == nil:
			wake(h)
		case ctx.Err() == nil && pgconn.Timeout(err) && !conn.IsClosed():
			ctx, cancel := context.WithTimeout(ctx, pgserver.CleanupTimeout)
			err := conn.Ping(ctx)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// hear waits for a notification on the channel. Where a handler of the application's has taken it,
// the hint is empty: something has come.
func hear(ctx context.Context, conn *pgx.Conn, channel string, limit time.Duration) (driver.Hint, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil || n == nil:
			return driver.Hint{}, err
		case n.Channel == channel: // and not one that the application's hooks listen to
			return hint(n.Payload), nil
		}
	}
}

// hint reads a payload: an attempt, and behind it, where that tells all of the grant, its token, of
// a cohort its first and its last token, and whether there are waiters. Whatever else it may be, it
// is a hint that something has come.
func hint(payload string) driver.Hint {
	fields := strings.Fields(payload)
	if len(fields) == 0 {
		return driver.Hint{}
	}
	h := driver.Hint{Attempt: fields[0]}
	if len(fields) < 3 || len(fields) > 4 {
		return h
	}
	n := len(fields)
	first, err := strconv.ParseInt(fields[1], 10, 64)
	token, unreadable := strconv.ParseInt(fields[n-2], 10, 64)
	waiters, uncounted := strconv.Atoi(fields[n-1])
	if err == nil && unreadable == nil && uncounted == nil {
		h.Grant = driver.Grant{First: first, Token: token, Contended: waiters > 0}
	}
	return h
}
