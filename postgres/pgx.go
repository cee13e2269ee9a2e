package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// pgxDB is a database over a pgx pool.
type pgxDB struct{ pool *pgxpool.Pool }

func (d pgxDB) validate() error {
	if d.pool == nil {
		return pgserver.ErrNilPool
	}
	return nil
}

func (d pgxDB) connections() driver.Pool {
	s := d.pool.Stat()
	return driver.Pool{InUse: int(s.AcquiredConns()), Most: int(s.MaxConns()), Kept: connpool.Kept(d.pool)}
}

func (d pgxDB) dropReadOnly(ctx context.Context) {
	for _, conn := range d.pool.AcquireAllIdle(ctx) {
		if readOnly(ctx, pgxConn{conn.Conn()}) {
			_ = pgserver.Close(conn.Conn())
		}
		conn.Release()
	}
}

func (d pgxDB) exec(ctx context.Context, s statement) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	s.queue(b)
	return conn.Conn().SendBatch(ctx, b).Close()
}

// acquire returns a connection of the pool that is readable.
func (d pgxDB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := readableConn(conn.Conn()); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// transact sends the whole transaction in one round trip. After an error the server skips the rest,
// including the COMMIT: the transaction is rolled back before the connection returns to the pool.
func (d pgxDB) transact(ctx context.Context, statements ...statement) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return transactOn(ctx, conn.Conn(), statements)
}

var (
	begin  = statement{sql: pgserver.Begin}
	commit = statement{sql: "COMMIT"}
)

func transactOn(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	err := sendOn(ctx, conn, append(append([]statement{begin}, statements...), commit))
	rollBack(ctx, conn)
	return err
}

func sendOn(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	b := &pgx.Batch{}
	for _, s := range statements {
		s.queue(b)
	}
	return conn.SendBatch(ctx, b).Close()
}

// rollBack ends the open transaction of a connection, if there is one.
func rollBack(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgserver.CleanupTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK") // on failure the connection breaks, or its pool drops it
}

func (d pgxDB) begin(ctx context.Context, statements ...statement) (opened, error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx := pgxOpened{conn}
	if err := tx.exec(ctx, append([]statement{begin}, statements...)...); err != nil {
		tx.rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// pgxOpened is a transaction on a connection of the pool.
type pgxOpened struct{ conn *pgxpool.Conn }

func (t pgxOpened) exec(ctx context.Context, statements ...statement) error {
	return sendOn(ctx, t.conn.Conn(), statements)
}

func (t pgxOpened) commit(ctx context.Context, statements ...statement) error {
	defer t.rollback(ctx)
	return t.exec(ctx, append(statements, commit)...)
}

func (t pgxOpened) rollback(ctx context.Context) {
	rollBack(ctx, t.conn.Conn())
	t.conn.Release()
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

func (d pgxDB) reserve(ctx context.Context, app string) (connection, error) {
	conn, err := pgserver.Connect(ctx, d.pool.Config(), app, unhandled)
	if err != nil {
		return nil, err
	}
	return pgxConn{conn}, nil
}

type pgxConn struct{ conn *pgx.Conn }

func (c pgxConn) exec(ctx context.Context, s statement) error {
	return sendOn(ctx, c.conn, []statement{s})
}

func (c pgxConn) transact(ctx context.Context, s ...statement) error {
	return transactOn(ctx, c.conn, s)
}

func (c pgxConn) close() error { return pgserver.Close(c.conn) }

func (c pgxConn) listenable() *pgx.Conn { return c.conn }

func (pgxDB) source() any { return nil }

func (pgxDB) orphaned() error { return nil }

func (pgxDB) spare() (most int, early bool) { return 2, false }
