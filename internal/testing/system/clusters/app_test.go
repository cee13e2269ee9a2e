//go:build linux

package clusters

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// app is an application: a client, and the transactions in which it writes.
type app struct {
	way string // how it reaches the cluster
	// direct: with nothing in between that would notice a server that is stopped.
	direct bool
	lock   func(ctx context.Context, name string) (held, error)
	// campaign stands for election until ctx ends.
	campaign func(ctx context.Context, name string, lead func(ctx context.Context, token int64)) error
	close    func(ctx context.Context) error
}

// held is a lock of an app.
type held struct {
	ctx    context.Context
	token  int64
	unlock func(ctx context.Context) error
	// add increments a counter in a transaction, and returns what it was before. begun is whether
	// Commit was called.
	add func(ctx context.Context, counter string) (before int64, begun bool, err error)
}

// transaction is a pgx.Tx or *sql.Tx.
type transaction interface {
	exec(ctx context.Context, statement string) error
	number(ctx context.Context, query string) (int64, error)
	commit(ctx context.Context) error
	rollback()
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, statement string) error {
	_, err := t.Exec(ctx, statement)
	return err
}

func (t pgxTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.QueryRow(ctx, query).Scan(&n)
	return n, err
}
func (t pgxTx) commit(ctx context.Context) error { return t.Commit(ctx) }
func (t pgxTx) rollback()                        { _ = t.Rollback(context.Background()) }

type sqlTx struct{ *sql.Tx }

func (t sqlTx) exec(ctx context.Context, statement string) error {
	_, err := t.ExecContext(ctx, statement)
	return err
}

func (t sqlTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
func (t sqlTx) commit(context.Context) error { return t.Commit() }
func (t sqlTx) rollback()                    { _ = t.Rollback() }

// writing bounds a transaction.
const writing = 5 * time.Second

// appOf is an application on an engine. Without guard a counter is protected by the lock alone.
func appOf[TX any](
	way string, engine dblock.Engine[TX], guard bool, begin func(ctx context.Context) (TX, error),
	as func(TX) transaction, options ...dblock.Option,
) (*app, error) {
	client, err := dblock.New(engine, options...)
	if err != nil {
		return nil, err
	}
	elections := election.New(client)
	lock := func(ctx context.Context, name string) (held, error) {
		l, err := client.Lock(ctx, name)
		if err != nil {
			return held{}, err
		}
		add := func(ctx context.Context, counter string) (before int64, begun bool, err error) {
			ctx, cancel := context.WithTimeout(ctx, writing)
			defer cancel()
			tx, err := begin(ctx)
			if err != nil {
				return 0, false, err
			}
			t := as(tx)
			defer t.rollback()
			if guard && !*bug {
				if err := client.Guard(ctx, tx, l); err != nil {
					return 0, false, err
				}
			}
			if before, err = t.number(ctx, fmt.Sprintf("SELECT n FROM counters WHERE name = '%s'",
				counter)); err != nil {
				return 0, false, err
			}
			for _, statement := range []string{
				fmt.Sprintf("UPDATE counters SET n = %d WHERE name = '%s'", before+1, counter),
				fmt.Sprintf("INSERT INTO increments (name, token, n) VALUES ('%s', %d, %d)", counter, l.Token(),
					before),
			} {
				if err := t.exec(ctx, statement); err != nil {
					return 0, false, err
				}
			}
			return before, true, t.commit(ctx)
		}
		return held{l.Context(), l.Token(), l.Unlock, add}, nil
	}
	campaign := func(ctx context.Context, name string, lead func(ctx context.Context, token int64)) error {
		return elections.Campaign(ctx, name, func(ctx context.Context, t *election.Term) error {
			lead(ctx, t.Token())
			return nil
		})
	}
	return &app{way: way, lock: lock, campaign: campaign, close: client.Close}, nil
}

// onPostgres is an application with a pool of pgx; direct is where it listens, "": as the pool
// connects.
func onPostgres(way, dsn, direct string, options ...dblock.Option) (*app, error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	var listen []postgres.Option
	if direct != "" {
		listen = append(listen, postgres.Listen(direct))
	}
	a, err := appOf(way, postgres.New(pool, listen...), true, pool.Begin,
		func(tx pgx.Tx) transaction { return pgxTx{tx} }, options...)
	return a.over(pool.Close, err)
}

// onMySQL is an application on MySQL or MariaDB; single: all write on one node.
func onMySQL(way, dsn string, single bool, options ...dblock.Option) (*app, error) {
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	var engine []mysql.Option
	if single {
		engine = append(engine, mysql.SingleWriter())
	}
	a, err := appOf(way, mysql.New(pool, engine...), single, func(ctx context.Context) (*sql.Tx, error) {
		return pool.BeginTx(ctx, nil)
	}, func(tx *sql.Tx) transaction { return sqlTx{tx} }, options...)
	return a.over(func() { _ = pool.Close() }, err)
}

// over closes the pool after the client.
func (a *app) over(pool func(), err error) (*app, error) {
	if err != nil {
		pool()
		return nil, err
	}
	client := a.close
	a.close = func(ctx context.Context) error {
		defer pool()
		return client(ctx)
	}
	return a, nil
}
