package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/optimistic"
)

// tableName is the program's own table.
const tableName = "dblock_example_tickets"

// errSoldOut is not a lost race: Retry returns it unchanged.
var errSoldOut = errors.New("sold out")

// sale is the sale of one concert.
type sale struct {
	options
	database.Database
	sold, overtaken atomic.Int64
	took            time.Duration
}

// bump shows the use of package optimistic: read the version and then the data, take any time, and
// bump the version in the transaction that writes. It is one attempt.
func (s *sale) bump(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		version, err := optimistic.Read(ctx, tx, tableName)
		if err != nil {
			return err
		}
		left, err := s.left(ctx, tx)
		if err != nil {
			return err
		}
		if err := optimistic.Bump(ctx, tx, tableName, version); err != nil {
			return err // optimistic.ErrConflict: another counter sold in between, and Retry begins again
		}
		return s.write(ctx, tx, left-1)
	})
}

// overwrite is bump without a version.
func (s *sale) overwrite(ctx context.Context) error {
	var left int
	err := s.inTx(ctx, func(tx *sql.Tx) (err error) {
		left, err = s.left(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error { return s.write(ctx, tx, left-1) })
}

// left returns the number of tickets. The customer thinks after reading it.
func (s *sale) left(ctx context.Context, tx *sql.Tx) (n int, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT n FROM "+tableName).Scan(&n); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, errSoldOut
	}
	select {
	case <-time.After(s.think):
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *sale) write(ctx context.Context, tx *sql.Tx, left int) error {
	_, err := tx.ExecContext(ctx, s.Bind("UPDATE "+tableName+" SET n = ?"), left)
	return err
}

func (s *sale) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.SQL.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// sellOut lets every counter sell until there is nothing left. Without a version the number
// sometimes goes up again; the sale still ends, when a counter has written 0.
func (s *sale) sellOut(ctx context.Context, sell func(context.Context) error) error {
	s.sold.Store(0)
	s.overtaken.Store(0)
	if _, err := s.SQL.ExecContext(ctx, s.Bind("UPDATE "+tableName+" SET n = ?"), s.tickets); err != nil {
		return err
	}
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var counters sync.WaitGroup
	for range s.counters {
		counters.Go(func() {
			for {
				attempts := int64(0)
				err := optimistic.Retry(ctx, func(ctx context.Context) error {
					attempts++
					return sell(ctx)
				}, optimistic.Attempts(1000))
				s.overtaken.Add(attempts - 1)
				if errors.Is(err, errSoldOut) {
					return
				}
				if err != nil {
					cancel(fmt.Errorf("sell: %w", err))
					return
				}
				s.sold.Add(1)
			}
		})
	}
	counters.Wait()
	s.took = time.Since(start).Round(time.Millisecond)
	return context.Cause(ctx)
}

func (s *sale) create(ctx context.Context) error {
	for _, statement := range []string{"DROP TABLE IF EXISTS " + tableName,
		"CREATE TABLE " + tableName + " (n int NOT NULL)",
		"INSERT INTO " + tableName + " (n) VALUES (0)"} {
		if _, err := s.SQL.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *sale) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	_, err := s.SQL.ExecContext(ctx, "DROP TABLE "+tableName)
	return err
}
