package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
)

const (
	table = "dblock_example_guard" // the example's own
	name  = "report/2026-11"       // of the lock
)

// worker writes reports, one at a time over all processes.
type worker struct {
	db     database.Database
	client *dblock.Client[*sql.Tx]
}

func newWorker(db database.Database, ttl time.Duration) (worker, error) {
	client, err := dblock.New(db.EngineOverSQL(), dblock.WithTTL(ttl))
	return worker{db, client}, err
}

// work takes the lock, works, and writes the result.
func (w worker) work(ctx context.Context, author string, work func(ctx context.Context)) error {
	lock, err := w.client.Lock(ctx, name)
	if err != nil {
		return err
	}
	// wakes the next waiter after the commit, and releases the lock if there was none
	defer lock.Unlock(ctx)
	fmt.Printf("%s holds %s, token %d.\n", author, name, lock.Token())
	work(lock.Context())
	return w.write(ctx, lock, author)
}

// write is the transaction: it commits only while the worker holds the lock, and its commit hands
// the lock to the next waiter.
func (w worker) write(ctx context.Context, lock *dblock.Lock, author string) error {
	tx, err := w.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit it does nothing
	if err := w.client.Guard(ctx, tx, lock); err != nil {
		return err
	}
	insert := w.db.Bind("INSERT INTO " + table + " (author, token) VALUES (?, ?)")
	if _, err := tx.ExecContext(ctx, insert, author, lock.Token()); err != nil {
		return err
	}
	if err := w.client.UnlockTx(ctx, tx, lock); err != nil {
		return err
	}
	return tx.Commit()
}
