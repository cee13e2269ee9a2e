package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

const (
	lifetime = 20 * time.Millisecond // of a pool's connections; pgxpool's default is an hour
	retry    = 5 * time.Millisecond
)

// naive is an advisory lock as applications write it: one statement takes it, another releases it.
// The lock belongs to the server connection that ran the first statement, and naive does not know
// which one that was.
type naive struct {
	on interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (n naive) tryLock(ctx context.Context) (taken bool, err error) {
	err = n.on.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", postgres.AdvisoryKey(name)).Scan(&taken)
	return taken, err
}

func (n naive) unlock(ctx context.Context) (released bool, err error) {
	err = n.on.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", postgres.AdvisoryKey(name)).Scan(&released)
	return released, err
}

// splitBrains are the ways in which two applications come to hold one naive lock.
type splitBrains struct {
	db     database.Database
	pooler string        // the DSN of the same database through a pooler; "": none
	second *pgxpool.Conn // of the second application
}

// show goes through all of them.
func (s splitBrains) show(ctx context.Context) (err error) {
	if s.second, err = s.db.Pool.Acquire(ctx); err != nil {
		return err
	}
	defer s.second.Release()
	for _, scenario := range []func(context.Context) error{s.recycled, s.broken, s.pooled} {
		if err := scenario(ctx); err != nil {
			return err
		}
	}
	return nil
}

// recycled lets the first application's pool close the connection that has the lock.
func (s splitBrains) recycled(ctx context.Context) error {
	fmt.Printf("\nA split brain: the pool closes old connections: %q\n", name)
	pool, err := openPool(ctx, s.db.DSN, func(c *pgxpool.Config) { c.MaxConnLifetime = lifetime })
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := taken(ctx, naive{pool}); err != nil {
		return err
	}
	fmt.Printf("  pg_try_advisory_lock: application 1 has it, and works; MaxConnLifetime is %v\n", lifetime)
	if err := workUntilRecycled(ctx, pool); err != nil {
		return err
	}
	if err := s.splits(ctx); err != nil {
		return err
	}
	fmt.Println("  application 2 has it, too: two holders")

	client, err := postgres.Advisory(pool)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	lock, err := client.Lock(ctx, name)
	if err != nil {
		return err
	}
	if err := workUntilRecycled(ctx, pool); err != nil {
		return err
	}
	if got, err := (naive{s.second}).tryLock(ctx); got || err != nil {
		return fmt.Errorf("application 2 has dblock's lock: %v, %w", got, err)
	}
	fmt.Println("  dblock: the lock's connection is not the pool's: application 2 does not get it")
	return lock.Unlock(ctx)
}

// broken ends the connection that has the lock while the first application does something else.
// Step loss shows the same with dblock.
func (s splitBrains) broken(ctx context.Context) error {
	fmt.Printf("\nA split brain: the connection breaks: %q\n", name)
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := taken(ctx, naive{conn}); err != nil {
		return err
	}
	fmt.Println("  pg_try_advisory_lock: application 1 has it, on a connection that it keeps")
	if err := cutConnection(ctx, s.db.Pool); err != nil {
		return err
	}
	if err := s.splits(ctx); err != nil {
		return err
	}
	if conn.Conn().IsClosed() {
		return errors.New("application 1 has heard of it")
	}
	fmt.Println("  the server ended it; application 2 has the lock, application 1 heard nothing: two holders")
	fmt.Println("  dblock: the lock's Context ends (above)")
	_ = conn.Conn().Close(ctx) // else the pool would lend it again
	return nil
}

// pooled puts a pooler in between that lends server connections by the transaction.
func (s splitBrains) pooled(ctx context.Context) error {
	fmt.Printf("\nA split brain: a pooler lends the connection to others: %q\n", name)
	if s.pooler == "" {
		fmt.Println("  left out: -pooler names the same database through a PgBouncer with pool_mode = transaction")
		return nil
	}
	var pools [2]*pgxpool.Pool
	for i := range pools {
		pool, err := openPool(ctx, s.pooler, func(c *pgxpool.Config) {
			// Before version 1.21 PgBouncer knows no prepared statements.
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		})
		if err != nil {
			return err
		}
		defer pool.Close()
		pools[i] = pool
	}
	if err := errors.Join(taken(ctx, naive{pools[0]}), taken(ctx, naive{pools[1]})); err != nil {
		return fmt.Errorf("without other load on the pooler: %w", err)
	}
	fmt.Println("  pg_try_advisory_lock: application 1 has it, and application 2, on the same server connection: " +
		"two holders")
	if err := s.leftBehind(ctx, pools); err != nil {
		return err
	}

	_, err := withAdvisory(ctx, pools[0])
	if !errors.Is(err, dblock.ErrConfig) {
		return fmt.Errorf("dblock did not refuse the pooler: %w", err)
	}
	fmt.Println("  dblock, postgres.Advisory:", err)
	if err := s.inTables(ctx, pools); err != nil {
		return err
	}
	return cutConnection(ctx, s.db.Pool) // if it still has the naive lock
}

// leftBehind has application 1 release the lock while application 2 has the server connection to
// which the lock belongs.
func (s splitBrains) leftBehind(ctx context.Context, pools [2]*pgxpool.Pool) error {
	tx, err := pools[1].Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	// With the first statement the pooler lends a server connection.
	if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
		return err
	}
	released, err := naive{pools[0]}.unlock(ctx)
	if err != nil {
		return err
	}
	if released {
		return errors.New("the pooler lent application 1 the connection of a transaction that is open")
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if got, err := (naive{s.second}).tryLock(ctx); got || err != nil {
		return fmt.Errorf("the lock was released: %v, %w", got, err)
	}
	fmt.Println("  pg_advisory_unlock on another server connection: false; the lock stays until the pooler's " +
		"connection ends")
	return nil
}

// inTables keeps the lock in tables, which works through the pooler.
func (s splitBrains) inTables(ctx context.Context, pools [2]*pgxpool.Pool) error {
	if err := migrate.Up(ctx, s.db.SQL, s.db.Engine); err != nil {
		return err
	}
	var clients [2]*dblock.Client[pgx.Tx]
	for i := range clients {
		client, err := dblock.New(postgres.New(pools[i]))
		if err != nil {
			return err
		}
		defer client.Close(context.WithoutCancel(ctx))
		clients[i] = client
	}
	lock, err := clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	if _, err := clients[1].TryLock(ctx, name); !errors.Is(err, dblock.ErrNotAcquired) {
		return fmt.Errorf("client 2 has it, too: %w", err)
	}
	if err := lock.Unlock(ctx); err != nil {
		return err
	}
	if lock, err = clients[1].TryLock(ctx, name); err != nil {
		return err
	}
	fmt.Println("  dblock, postgres.New: a row, not a connection, has the lock: one holder after the other")
	return lock.Unlock(ctx)
}

// splits waits until the second application has the lock that the first one has not released, and
// releases it. The server may need a moment to end the first one's connection.
func (s splitBrains) splits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lossWait)
	defer cancel()
	second := naive{s.second}
	for {
		got, err := second.tryLock(ctx)
		if err != nil {
			return err
		}
		if got {
			_, err := second.unlock(ctx)
			return err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return errors.New("application 2 does not get the lock")
		}
	}
}

// taken takes the naive lock, which must be free.
func taken(ctx context.Context, n naive) error {
	got, err := n.tryLock(ctx)
	if err == nil && !got {
		err = errors.New("pg_try_advisory_lock: false")
	}
	return err
}

func withAdvisory(ctx context.Context, pool *pgxpool.Pool) (dblock.Handle, error) {
	client, err := postgres.Advisory(pool)
	if err != nil {
		return nil, err
	}
	defer client.Close(context.WithoutCancel(ctx))
	return client.TryLock(ctx, name)
}

// workUntilRecycled uses the pool as an application does, until it has closed a connection for its
// age.
func workUntilRecycled(ctx context.Context, pool *pgxpool.Pool) error {
	for before := pool.Stat().MaxLifetimeDestroyCount(); pool.Stat().MaxLifetimeDestroyCount() == before; {
		if _, err := pool.Exec(ctx, "SELECT 1"); err != nil {
			return err
		}
	}
	return nil
}

func openPool(ctx context.Context, dsn string, set func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	set(config)
	return pgxpool.NewWithConfig(ctx, config)
}
