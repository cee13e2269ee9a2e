package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// echoTimeout is how long a listener waits for its own first notification.
	echoTimeout = 2 * time.Second
	// pingInterval is how often a silent listener asks whether its connection still lives.
	pingInterval = 30 * time.Second
)

// pgxDB is a database over a pgx pool.
type pgxDB struct{ pool *pgxpool.Pool }

func (d pgxDB) validate() error {
	if d.pool == nil {
		return pgserver.ErrNilPool
	}
	return nil
}

func (d pgxDB) connections() (inUse, most int) {
	s := d.pool.Stat()
	return int(s.AcquiredConns()), int(s.MaxConns())
}

func (d pgxDB) exec(ctx context.Context, s statement) error {
	b := &pgx.Batch{}
	s.queue(b)
	return d.pool.SendBatch(ctx, b).Close()
}

// transact sends the whole transaction in one round trip. After an error the server has skipped the
// rest, the COMMIT too: the transaction is rolled back before the connection goes back to the pool.
func (d pgxDB) transact(ctx context.Context, statements ...statement) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return transactOn(ctx, conn.Conn(), statements)
}

func transactOn(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	b := &pgx.Batch{}
	b.Queue(pgserver.Begin)
	for _, s := range statements {
		s.queue(b)
	}
	b.Queue("COMMIT")
	err := conn.SendBatch(ctx, b).Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, "ROLLBACK") // where it fails, the connection breaks, or its pool drops it
	}
	return err
}

func (s statement) queue(b *pgx.Batch) {
	q := b.Queue(s.sql, s.args...)
	if s.row == nil {
		return
	}
	q.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := s.row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (d pgxDB) reserve(ctx context.Context) (connection, error) {
	conn, err := pgserver.Connect(ctx, d.pool, nil)
	if err != nil {
		return nil, err
	}
	return pgxConn{conn}, nil
}

type pgxConn struct{ conn *pgx.Conn }

func (c pgxConn) exec(ctx context.Context, s statement) error {
	b := &pgx.Batch{}
	s.queue(b)
	return c.conn.SendBatch(ctx, b).Close()
}

func (c pgxConn) transact(ctx context.Context, s ...statement) error {
	return transactOn(ctx, c.conn, s)
}

func (c pgxConn) close() error { return pgserver.Close(c.conn) }

func (pgxDB) spare() (most int, early bool) { return 2, false }

// listen proves that it hears before it says that it is ready: behind a pooler that lends
// connections by the transaction, LISTEN succeeds and nothing ever arrives. So it sends itself a
// notification through the pool.
func (d pgxDB) listen(ctx context.Context, channel string, ready func(), wake func(driver.Hint)) error {
	conn, err := pgserver.Connect(ctx, d.pool, nil)
	if err != nil {
		return err
	}
	defer pgserver.Close(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if _, err := d.pool.Exec(ctx, "SELECT pg_notify($1, '')", channel); err != nil {
		return err
	}
	if _, err := waitForNotification(ctx, conn, echoTimeout); err != nil {
		if ctx.Err() == nil && pgconn.Timeout(err) {
			return driver.Fail(driver.ErrUnsupported, errors.New("LISTEN hears nothing on this connection: is a pooler in between?"))
		}
		return err
	}
	ready()
	for {
		n, err := waitForNotification(ctx, conn, pingInterval)
		switch {
		case err == nil:
			wake(hint(n.Payload))
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

// hint reads what HandOver and Reenter send: an attempt, and behind it, where there is no fixed
// lease, the token and the number of waiters.
func hint(payload string) driver.Hint {
	var h driver.Hint
	var waiters int
	if n, _ := fmt.Sscan(payload, &h.Attempt, &h.Grant.Token, &waiters); n != 3 {
		h.Grant.Token = 0
	}
	h.Grant.Contended = waiters > 0
	return h
}

func waitForNotification(ctx context.Context, conn *pgx.Conn, limit time.Duration) (*pgconn.Notification, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return conn.WaitForNotification(ctx)
}
