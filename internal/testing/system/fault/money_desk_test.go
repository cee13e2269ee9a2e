//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/reaper"
	"github.com/dblock-go/dblock/sqlite"
)

// deskConns is enough for each worker to have a transaction open and the client a connection for a
// moment: a LockTx that waits for a lease needs one, and so would all of them.
const deskConns = 8

// desk is what a process of the money test has: a pool, clients on it, and what a transaction is
// there.
type desk[TX any] struct {
	client      *dblock.Client[TX]
	native      dblock.Locker // of the server's own locks; nil: not with this kind of transaction
	nativeTx    txSharer[TX]  // the same for transactions; nil: there is none
	begin       func(ctx context.Context) (TX, error)
	exec        func(ctx context.Context, tx TX, statement string) error
	number      func(ctx context.Context, tx TX, query string) (int64, error)
	commit      func(ctx context.Context, tx TX) error
	rollback    func(ctx context.Context, tx TX) error
	closePool   func()
	closeNative func(ctx context.Context) error
}

// txLocker takes locks in transactions.
type txLocker[TX any] interface {
	LockTx(ctx context.Context, tx TX, names ...string) error
	TryLockTx(ctx context.Context, tx TX, names ...string) error
}

// txSharer takes them as a reader, too.
type txSharer[TX any] interface {
	txLocker[TX]
	LockSharedTx(ctx context.Context, tx TX, names ...string) error
}

func pgxDesk(c actorConfig) (*desk[pgx.Tx], error) {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = deskConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	d := &desk[pgx.Tx]{
		begin: pool.Begin,
		exec: func(ctx context.Context, tx pgx.Tx, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
		number: func(ctx context.Context, tx pgx.Tx, query string) (n int64, err error) {
			return n, tx.QueryRow(ctx, query).Scan(&n)
		},
		commit:    func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		rollback:  func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		closePool: pool.Close,
	}
	if d.client, err = tellerClient(c, postgres.New(pool)); err != nil {
		return nil, err
	}
	own, err := postgres.Advisory(pool, postgres.AdvisoryTTL(c.TTL), postgres.AdvisoryLogger(tellerLog()))
	if err == nil {
		d.native, d.nativeTx, d.closeNative = own, own, own.Close
	}
	return d, err
}

func sqlDesk(c actorConfig) (*desk[*sql.Tx], error) {
	db, err := openSQL(c.Kind, c.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(deskConns)
	db.SetMaxIdleConns(deskConns) // a connection is dear
	d := &desk[*sql.Tx]{
		begin: func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) },
		exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		number: func(ctx context.Context, tx *sql.Tx, query string) (n int64, err error) {
			return n, tx.QueryRowContext(ctx, query).Scan(&n)
		},
		commit:    func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		rollback:  func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		closePool: func() { _ = db.Close() },
	}
	var engine driver.Engine[*sql.Tx]
	switch c.Kind {
	case dbtest.KindPostgres:
		engine = postgres.NewSQL(db)
	case dbtest.KindSQLite:
		engine = sqlite.New(db)
	default:
		engine = dblockmysql.New(db)
		named, err := openSQL(c.Kind, c.DSN) // it keeps its connections while a lock is held or waited for
		if err != nil {
			return nil, err
		}
		named.SetMaxOpenConns(deskConns)
		named.SetMaxIdleConns(deskConns)
		d.closePool = func() { _ = errors.Join(named.Close(), db.Close()) }
		own, err := dblockmysql.Named(named, dblockmysql.NamedTTL(c.TTL), dblockmysql.NamedLogger(tellerLog()))
		if err != nil {
			return nil, err
		}
		d.native, d.closeNative = own, own.Close
	}
	d.client, err = tellerClient(c, engine)
	return d, err
}

func tellerClient[TX any](c actorConfig, engine driver.Engine[TX]) (*dblock.Client[TX], error) {
	return dblock.New(engine, dblock.WithTTL(c.TTL), dblock.WithLogger(tellerLog()),
		dblock.WithReaper(reaper.Interval(reapInterval), reaper.OnReport(func(reaper.Report) {})))
}

func tellerLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (d *desk[TX]) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := d.client.Close(ctx)
	if d.native != nil {
		err = errors.Join(err, d.closeNative(ctx))
	}
	d.closePool()
	return err
}

// errUnknown is of a commit that was not acknowledged: the transfer may be in or not.
var errUnknown = errors.New("the outcome of the commit is not known")

// within runs do in a transaction. Any error but errUnknown means that nothing of it is there.
func (d *desk[TX]) within(ctx context.Context, do func(tx TX) error) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = d.rollback(ctx, tx) // an error is that the connection has gone, and the transaction with it
		return err
	}
	if err := d.commit(ctx, tx); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return nil
}
