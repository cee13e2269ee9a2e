package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tables"
)

const (
	// commitTimeout bounds the wait of a commit in rollback-journal mode for readers to finish. New
	// readers are kept out meanwhile, so the wait is short, unless a reader waits for this writer:
	// then the commit must fail.
	commitTimeout = time.Second

	// briefly is the wait of a caller that wants an answer at once. Transactions of dblock, and of
	// other clients without long pauses, are shorter.
	briefly = 50 * time.Millisecond
)

var errLocked = errors.New("another transaction has locked the database")

// database runs statements on connections of the pool.
type database struct {
	db *sql.DB
	// turn is held by the next writer of this engine. Without turn, each of many goroutines would
	// take a connection of the pool only to find the database busy.
	turn chan struct{}
	fit  atomic.Bool          // set once inspect has accepted the database
	file atomic.Pointer[file] // nil: not known yet
	// main is set if the tables are in the connections' main database, not in an attached one.
	// Statements name only the main one: connections may attach a file under several names.
	main   atomic.Bool
	tables tables.Place
	cache  atomic.Int32 // a value of type cache
	// stuck is the time, counted from epoch, since which every writer of this engine has found the
	// database busy. 0: the last writer has not.
	stuck atomic.Int64
}

// epoch is the origin of stuck, on the monotonic clock.
var epoch = time.Now()

// path returns the database's file, or "" if there is none or it is not known yet.
func (d *database) path() string {
	if at := d.file.Load(); at != nil {
		return at.path
	}
	return ""
}

// writing configures a transaction that writes.
type writing struct {
	// patience bounds the wait for another transaction; after it the write fails with ErrBusy. 0:
	// the write waits until its context ends. Earlier writers of this engine do not count as long
	// as they make progress.
	patience time.Duration
	commits  durability // relaxed applies unless the transaction is lasting
	first    bool       // skips the queue of this engine's writers
}

// writer is a transaction that holds the write lock.
type writer struct {
	*sqlitedb.Queries
	lasting bool // the transaction must survive a crash of the machine: see mustLast
}

// write runs fn as one transaction that holds the write lock from its start. fn may run more than
// once.
func (d *database) write(ctx context.Context, fn func(ctx context.Context, q *sqlitedb.Queries) error) error {
	return d.writeAs(ctx, writing{}, func(ctx context.Context, w *writer) error { return fn(ctx, w.Queries) })
}

func (d *database) writeAs(ctx context.Context, how writing, fn func(ctx context.Context, w *writer) error) error {
	if how.commits == relaxed && !d.relaxes(ctx) {
		how.commits = asSet
	}
	if !how.first {
		if err := d.await(ctx, how.patience); err != nil {
			return err
		}
		defer func() { <-d.turn }()
	}
	err := d.writeNow(ctx, how.patience, how.commits, fn)
	if errors.Is(err, errLasting) {
		err = d.writeNow(ctx, how.patience, asSet, fn)
	}
	return err
}

// writeNow fails with errLasting, without effect, if the transaction needs more than a relaxed
// commit.
func (d *database) writeNow(
	ctx context.Context, patience time.Duration, commits durability, fn func(ctx context.Context, w *writer) error,
) error {
	return d.withConn(ctx, patience, commits, func(quiet context.Context, conn *sql.Conn) error {
		err := d.transact(ctx, quiet, conn, patience, func(ctx context.Context, q *sqlitedb.Queries) error {
			w := &writer{Queries: q}
			err := fn(ctx, w)
			if err == nil && w.lasting && commits == relaxed {
				err = errLasting
			}
			return err
		})
		if busy(err) {
			d.stuck.CompareAndSwap(0, int64(time.Since(epoch)))
		} else {
			d.stuck.Store(0)
		}
		return err
	})
}

// await returns when it is the caller's turn to write.
func (d *database) await(ctx context.Context, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var check <-chan time.Time
	if patience > 0 {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		check = tick.C
	}
	for {
		select {
		case d.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-check:
			if since := d.stuck.Load(); since != 0 && time.Since(epoch)-time.Duration(since) > patience {
				return d.locked(errLocked)
			}
		}
	}
}

// read runs fn, which must be a single statement, so that it sees one state of the database.
func (d *database) read(ctx context.Context, fn func(ctx context.Context, q *sqlitedb.Queries) error) error {
	return d.withConn(ctx, 0, asSet, func(quiet context.Context, conn *sql.Conn) error {
		return fn(quiet, d.queriesOn(conn))
	})
}

// withConn borrows a connection for fn, and retries while the database is busy, for at most
// patience if patience is not 0. The context passed to fn never ends.
func (d *database) withConn(
	ctx context.Context, patience time.Duration, commits durability,
	fn func(quiet context.Context, conn *sql.Conn) error,
) error {
	var obstacle error
	for b := (backoff{}); ; {
		err := d.inspect(ctx)
		if err == nil {
			err = d.borrow(ctx, commits, fn)
		}
		if busy(err) {
			if patience > 0 && obstacle != nil && time.Since(b.since) > patience {
				return d.locked(err)
			}
			obstacle = err
			err = b.wait(ctx)
		} else if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			return interpret(err)
		}
		if err != nil && obstacle != nil {
			return driver.Fail(err, fmt.Errorf("%w: %w", errLocked, obstacle))
		}
		if err != nil {
			return err
		}
	}
}

// locked returns ErrBusy of a request that has waited for as long as it may. A commit writes to the
// -wal or, without one, to the file. A transaction that is open writes to neither, unless it is
// larger than the cache.
func (d *database) locked(cause error) error {
	commit := ""
	if path := d.path(); path != "" {
		for _, suffix := range []string{"", "-wal"} {
			if info, err := os.Stat(path + suffix); err == nil {
				commit = fmt.Sprint(info.ModTime().UnixNano(), info.Size())
			}
		}
	}
	return driver.Fail(driver.ErrBusy, &driver.Locked{Commit: commit, Cause: cause})
}

// conn returns a connection of the pool. If ctx ended first, the error says so: ncruces/go-sqlite3
// calls a connection that was cut off while it was opened interrupted.
func (d *database) conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := d.db.Conn(ctx)
	if over := ctx.Err(); err != nil && over != nil && !errors.Is(err, over) {
		err = driver.Fail(over, err)
	}
	return conn, err
}

// transact leaves the connection outside of any transaction, or discards it, however transact ends.
func (d *database) transact(
	ctx, quiet context.Context, conn *sql.Conn, patience time.Duration,
	fn func(context.Context, *sqlitedb.Queries) error,
) error {
	done := false
	defer func() {
		if !done {
			rollBack(quiet, conn)
		}
	}()
	if _, err := conn.ExecContext(quiet, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := fn(quiet, d.queriesOn(conn)); err != nil {
		return err
	}
	if patience == 0 {
		patience = commitTimeout
	}
	if err := commit(ctx, quiet, conn, patience); err != nil {
		return err
	}
	done = true
	return nil
}

// commit retries while readers block it. A rollback would admit new readers.
func commit(ctx, quiet context.Context, conn *sql.Conn, patience time.Duration) error {
	start := time.Now()
	for b := (backoff{}); ; {
		_, err := conn.ExecContext(quiet, "COMMIT")
		if !busy(err) || time.Since(start) > patience || b.wait(ctx) != nil {
			return err
		}
	}
}

// rollBack ends a transaction that may have ended already. SQLite rolls back by itself after some
// errors and then reports that there is no transaction. That report is true if a second transaction
// can begin.
func rollBack(ctx context.Context, conn *sql.Conn) {
	for _, statement := range []string{"ROLLBACK", "BEGIN", "ROLLBACK"} {
		_, err := conn.ExecContext(ctx, statement)
		switch {
		case statement == "ROLLBACK" && err == nil:
			return
		case statement == "BEGIN" && err != nil:
			discard(conn)
			return
		}
	}
	discard(conn)
}
