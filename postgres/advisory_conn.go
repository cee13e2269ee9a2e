package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/connlock"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	// A process that is stopped while it is the first of a queue must not stay the first. So a
	// place in a queue is kept in a transaction, whose session the server ends when it is idle for
	// so long; a waiter that goes on needs it for a round trip. Without a transaction it would take
	// idle_session_timeout, which PostgreSQL 13 does not have.
	waiterTimeout = "SET idle_in_transaction_session_timeout = '10s';"
	// Most systems can tell the server that a client has gone while its statement waits; on others
	// setting this fails.
	waiterCheck = `SELECT set_config(name, '1s', false) FROM pg_catalog.pg_settings WHERE name = 'client_connection_check_interval'`

	// The queue is looked at by taking a share of it, so that those who only look do not see each
	// other.
	prepareOps = `
		PREPARE dblock_try (int8, int8) AS SELECT CASE WHEN pg_try_advisory_lock_shared($2) THEN
			CASE WHEN pg_try_advisory_lock($1) THEN CASE WHEN pg_advisory_unlock_shared($2) THEN 1 ELSE 2 END
			ELSE CASE WHEN pg_advisory_unlock_shared($2) THEN 0 ELSE 2 END END ELSE 0 END;
		PREPARE dblock_try_shared (int8, int8) AS SELECT CASE WHEN pg_try_advisory_lock_shared($2) THEN
			CASE WHEN pg_try_advisory_lock_shared($1) THEN CASE WHEN pg_advisory_unlock_shared($2) THEN 1 ELSE 2 END
			ELSE CASE WHEN pg_advisory_unlock_shared($2) THEN 0 ELSE 2 END END ELSE 0 END;
		PREPARE dblock_take (int8) AS SELECT pg_try_advisory_lock($1)::int;
		PREPARE dblock_take_shared (int8) AS SELECT pg_try_advisory_lock_shared($1)::int;
		PREPARE dblock_give (int8) AS SELECT pg_advisory_unlock($1)::int;
		PREPARE dblock_give_shared (int8) AS SELECT pg_advisory_unlock_shared($1)::int;`
)

// Whatever the application wants for its own statements: a lock may be held and waited for longer.
// pg_settings knows which of them a server has.
var (
	timeouts   = []string{"statement_timeout", "lock_timeout", "transaction_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"}
	noTimeouts = "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN ('" + strings.Join(timeouts, "', '") + "');"
)

// open opens a connection beside the pool, with a read that can be interrupted.
func (a advisory) open(ctx context.Context) (*pgx.Conn, error) {
	return pgserver.Connect(ctx, a.pool, func(config *pgx.ConnConfig) {
		for _, timeout := range timeouts { // before noTimeouts can, which must wait until it is clear whose session this is
			if config.RuntimeParams[timeout] != "" {
				config.RuntimeParams[timeout] = "0"
			}
		}
		// One that asks the server to cancel when a context ends would make noise each time that a
		// watch is interrupted.
		config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
	})
}

// where identifies the running server, by the moment of its start.
func where(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := simple(ctx, conn, "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8")
	if err != nil {
		return "", err
	}
	return "server started at " + rows[0] + " µs", nil
}

// simple runs statements by the simple protocol, which every pooler understands, and returns the
// first column of each row.
func simple(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	var values []string
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			values = append(values, string(row[0]))
		}
	}
	return values, err
}

// advisoryPin is a connlock.Pin.
type advisoryPin struct {
	conn   *pgx.Conn
	server string
}

// Pin opens the connection that has the locks.
func (a advisory) Pin(ctx context.Context) (connlock.Pin[advisoryKeys], error) {
	conn, err := a.open(ctx)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	p := &advisoryPin{conn: conn}
	if err = a.refuse(ctx, conn); err == nil {
		if p.server, err = where(ctx, conn); err == nil {
			_, err = simple(ctx, conn, noTimeouts+prepareOps)
		}
	}
	switch {
	case errors.Is(err, driver.ErrReadOnly):
		pgserver.Shut(conn)
		return nil, err
	case err != nil:
		pgserver.Shut(conn)
		return nil, pgserver.Interpret(err)
	}
	return p, nil
}

func (p *advisoryPin) Server() string { return p.server }
func (p *advisoryPin) Close()         { pgserver.Shut(p.conn) }

// Watch reads. What the server has to say meanwhile, in notices and parameters, is no news.
func (p *advisoryPin) Watch(ctx context.Context) error {
	for {
		_, err := p.conn.WaitForNotification(ctx)
		switch {
		case p.conn.IsClosed():
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// Run sends all operations in one round trip. What takes or gives a session's lock stays done when
// a later one fails.
func (p *advisoryPin) Run(ctx context.Context, ops []*connlock.Op[advisoryKeys]) error {
	for len(ops) > 0 {
		results, err := p.send(ctx, ops)
		for i, r := range results {
			if r.Err != nil || len(r.Rows) != 1 {
				results = results[:i]
				break
			}
			answer := string(r.Rows[0][0])
			if answer == "2" {
				return errors.New("the server says that a lock was not held which it had given a moment ago")
			}
			ops[i].OK = answer == "1"
		}
		done := len(results)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		if p.conn.IsClosed() || !errors.As(err, &refused) || refused.Code != pgserver.OutOfMemory || done == len(ops) {
			return err
		}
		// The table of locks is full. That happens between two of them: what is to be undone is the
		// share of the queue.
		op := ops[done]
		op.Err = pgserver.Interpret(fmt.Errorf("max_locks_per_transaction × max_connections is what fits: %w", err))
		if op.Kind == connlock.Try {
			if _, err := simple(ctx, p.conn, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", op.Key.queue)); err != nil {
				return err
			}
		}
		ops = ops[done+1:]
	}
	return nil
}

// send has one operation go alone: a batch starts a goroutine that writes, which is a good part of
// what a free lock costs.
func (p *advisoryPin) send(ctx context.Context, ops []*connlock.Op[advisoryKeys]) ([]*pgconn.Result, error) {
	if len(ops) == 1 {
		name, args := prepared(ops[0])
		result := p.conn.PgConn().ExecPrepared(ctx, name, args, binary64[:len(args)], nil).Read()
		return []*pgconn.Result{result}, result.Err
	}
	b := &pgconn.Batch{}
	for _, op := range ops {
		name, args := prepared(op)
		b.ExecPrepared(name, args, binary64[:len(args)], nil)
	}
	return p.conn.PgConn().ExecBatch(ctx, b).ReadAll()
}

var binary64 = []int16{pgx.BinaryFormatCode, pgx.BinaryFormatCode}

func prepared(op *connlock.Op[advisoryKeys]) (name string, args [][]byte) {
	args = [][]byte{int8Bytes(op.Key.lock)}
	switch op.Kind {
	case connlock.Try:
		name = "dblock_try"
		args = append(args, int8Bytes(op.Key.queue))
	case connlock.Take:
		name = "dblock_take"
	case connlock.Give:
		name = "dblock_give"
	}
	if op.Shared {
		name += "_shared"
	}
	return name, args
}

// advisoryWaiter is a connlock.Waiter.
type advisoryWaiter struct {
	conn   *pgx.Conn
	server string
	first  bool // has the key of the queue
}

// Waiter opens a connection to wait on.
func (a advisory) Waiter(ctx context.Context) (connlock.Waiter[advisoryKeys], error) {
	conn, err := a.open(ctx)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	w := &advisoryWaiter{conn: conn}
	if w.server, err = where(ctx, conn); err == nil {
		if _, err = simple(ctx, conn, noTimeouts+waiterTimeout); err == nil {
			if _, err = simple(ctx, conn, waiterCheck); !conn.IsClosed() {
				err = nil
			}
		}
	}
	if err != nil {
		pgserver.Shut(conn)
		return nil, pgserver.Interpret(err)
	}
	return w, nil
}

func (w *advisoryWaiter) Server() string { return w.server }
func (w *advisoryWaiter) Close()         { pgserver.Shut(w.conn) }

// Wait takes the queue, and then the lock for no longer than the statement: it wants to see it
// free. On its end before that the session has neither, whoever closes it how late.
func (w *advisoryWaiter) Wait(ctx context.Context, key advisoryKeys, shared bool) error {
	mode := ""
	if shared {
		mode = "_shared"
	}
	sql := fmt.Sprintf("SELECT pg_advisory_lock%[1]s(%[2]d); SELECT pg_advisory_unlock%[1]s(%[2]d)", mode, key.lock)
	if !w.first {
		sql = fmt.Sprintf(pgserver.Begin+"; SELECT pg_advisory_lock(%d); ", key.queue) + sql
	}
	_, err := cancellable(ctx, w.conn.PgConn(), func(ctx context.Context) error {
		_, err := simple(ctx, w.conn, sql)
		return err
	})
	if err == nil {
		w.first = true
		return nil
	}
	if !w.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
		defer cancel()
		_, _ = simple(ctx, w.conn, "ROLLBACK; SELECT pg_advisory_unlock_all()") // or else with the connection, a moment later
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return pgserver.Interpret(err)
}

func (w *advisoryWaiter) Leave(ctx context.Context, key advisoryKeys) error {
	w.first = false
	answers, err := simple(ctx, w.conn, fmt.Sprintf("COMMIT; SELECT pg_advisory_unlock(%d)", key.queue))
	switch {
	case err != nil:
		return pgserver.Interpret(err)
	case answers[0] != "t":
		return driver.Fail(driver.ErrUnavailable, errors.New("something unlocked the queue on the waiter's connection"))
	}
	return nil
}

// cancellable runs statements that may wait, and has the server cancel them when ctx ends, again
// and again until they have come to an end. So the connection survives, unless they have not ended
// after the grace. It reports how often the server was asked: when it returns, no request is on its
// way any more.
func cancellable(ctx context.Context, conn *pgconn.PgConn, run func(ctx context.Context) error) (cancels int, err error) {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	ended, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		limit, cancel := context.WithTimeout(work, transaction.Grace)
		defer cancel()
		for next := time.NewTimer(0); ; next.Reset(pgserver.CancelInterval) {
			select {
			case <-ended:
				return
			case <-limit.Done():
				giveUp()
				return
			case <-next.C:
				cancels++
				_ = conn.CancelRequest(limit)
			}
		}
	})
	err = run(work)
	close(ended)
	if !stop() {
		<-asked
	}
	return cancels, err
}
