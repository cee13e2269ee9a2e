package advisory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

// prepareOps prepares the operations. One that does not wait must not pass the queue: it takes a
// share of the queue for the length of the statement. With a share, two of these do not take each
// other for a waiter.
const prepareOps = `
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

// pin is a sessionlock.Pin.
type pin struct {
	conn   *pgx.Conn
	server string
}

// Pin opens the connection that has the locks.
func (s server) Pin(ctx context.Context) (sessionlock.Pin[keys], error) {
	conn, err := s.open(ctx)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	p := &pin{conn: conn}
	if err = s.refuse(ctx, conn); err == nil {
		if p.server, err = whichServer(ctx, conn); err == nil {
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

func (p *pin) Server() string { return p.server }
func (p *pin) Close()         { pgserver.Shut(p.conn) }

// Watch reads. Notices and changes of parameters that the server sends meanwhile are ignored.
func (p *pin) Watch(ctx context.Context) error {
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

// Do sends all operations in one round trip. A session lock that one of them takes or releases
// stays taken or released if a later one fails.
func (p *pin) Do(ctx context.Context, ops []*sessionlock.Op[keys]) error {
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
		// The server's table of locks is full. If the queue's share fitted and the lock did not,
		// the share has to be released.
		op := ops[done]
		op.Err = pgserver.Interpret(fmt.Errorf("max_locks_per_transaction × max_connections is what fits: %w", err))
		if op.Kind == sessionlock.Try {
			if _, err := simple(ctx, p.conn, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)",
				op.Key.queue)); err != nil {
				return err
			}
		}
		ops = ops[done+1:]
	}
	return nil
}

// send sends a single operation without a batch: a batch starts a goroutine that writes, which is a
// good part of the cost of a free lock.
func (p *pin) send(ctx context.Context, ops []*sessionlock.Op[keys]) ([]*pgconn.Result, error) {
	if len(ops) == 1 {
		name, args := prepared(ops[0])
		result := p.conn.PgConn().ExecPrepared(ctx, name, args, binaryFormats[:len(args)], nil).Read()
		return []*pgconn.Result{result}, result.Err
	}
	b := &pgconn.Batch{}
	for _, op := range ops {
		name, args := prepared(op)
		b.ExecPrepared(name, args, binaryFormats[:len(args)], nil)
	}
	return p.conn.PgConn().ExecBatch(ctx, b).ReadAll()
}

var binaryFormats = []int16{pgx.BinaryFormatCode, pgx.BinaryFormatCode}

// prepared returns an operation's prepared statement and its arguments.
func prepared(op *sessionlock.Op[keys]) (name string, args [][]byte) {
	args = [][]byte{int8Bytes(op.Key.lock)}
	switch op.Kind {
	case sessionlock.Try:
		name = "dblock_try"
		args = append(args, int8Bytes(op.Key.queue))
	case sessionlock.Take:
		name = "dblock_take"
	case sessionlock.Give:
		name = "dblock_give"
	}
	if op.Shared {
		name += "_shared"
	}
	return name, args
}

// int8Bytes encodes a key in PostgreSQL's binary format.
func int8Bytes(key int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(key)) }
