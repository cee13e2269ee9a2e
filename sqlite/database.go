package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

const (
	// firstPause and longestPause bound the wait between two tries to get past another writer. A try costs some
	// microseconds, so that even the longest pause can be short.
	firstPause   = 100 * time.Microsecond
	longestPause = 5 * time.Millisecond

	// commitPatience is how long a commit in rollback-journal mode waits for readers to finish. New readers are kept
	// out meanwhile, so that it ends soon, unless a reader waits for us: then we must be the one who gives up.
	commitPatience = time.Second
)

// database runs statements on connections of the pool.
type database struct {
	db *sql.DB
	// turn is held by the writer of this engine that goes next. Without it, each of many goroutines would take a
	// connection of the pool only to find the database busy.
	turn chan struct{}
	fit  atomic.Bool // inspect has nothing more to find
}

// write runs fn as one transaction that holds the write lock from its start. It may run fn more than once.
func (d *database) write(ctx context.Context, fn func(ctx context.Context, q *sqlitedb.Queries) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.writeFirst(ctx, fn)
}

// writeFirst is write for what must not queue behind the client's own work.
func (d *database) writeFirst(ctx context.Context, fn func(ctx context.Context, q *sqlitedb.Queries) error) error {
	return d.run(ctx, func(quiet context.Context, conn *sql.Conn) error {
		return transact(ctx, quiet, conn, fn)
	})
}

// read runs fn, which must be a single statement: it sees one state of the database.
func (d *database) read(ctx context.Context, fn func(ctx context.Context, q *sqlitedb.Queries) error) error {
	return d.run(ctx, func(quiet context.Context, conn *sql.Conn) error {
		return fn(quiet, sqlitedb.New(conn))
	})
}

// run lends fn a connection, again and again while the database is busy. The context that fn gets never ends.
func (d *database) run(ctx context.Context, fn func(quiet context.Context, conn *sql.Conn) error) error {
	var obstacle error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := d.inspect(ctx)
		if err == nil {
			err = d.lend(ctx, fn)
		}
		if busy(err) {
			obstacle = err
			err = sleep(ctx, pause)
		} else if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			return interpret(err)
		}
		if err != nil && obstacle != nil {
			return driver.Fail(err, obstacle)
		}
		if err != nil {
			return err
		}
	}
}

// sleep waits for about as long as said, or until ctx ends: then it returns the context's error.
func sleep(ctx context.Context, about time.Duration) error {
	timer := time.NewTimer(about/2 + rand.N(about))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *database) lend(ctx context.Context, fn func(quiet context.Context, conn *sql.Conn) error) (err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	quiet := context.WithoutCancel(ctx)
	var patience int64
	if err := conn.QueryRowContext(quiet, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return err
	}
	if patience != 0 {
		defer func() {
			if setPatience(quiet, conn, patience) != nil {
				discard(conn)
			}
		}()
		if err := setPatience(quiet, conn, 0); err != nil {
			return err
		}
	}
	err = fn(quiet, conn)
	if code, coded := codeOf(err); coded && code == sqliteError && !migrated(quiet, conn) {
		return driver.Fail(driver.ErrSchema, err)
	}
	return err
}

func setPatience(ctx context.Context, conn *sql.Conn, milliseconds int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", milliseconds))
	return err
}

// transact leaves the connection outside of any transaction, or out of the pool, however it ends.
func transact(ctx, quiet context.Context, conn *sql.Conn, fn func(context.Context, *sqlitedb.Queries) error) error {
	done := false
	defer func() {
		if !done {
			rollBack(quiet, conn)
		}
	}()
	if _, err := conn.ExecContext(quiet, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := fn(quiet, sqlitedb.New(conn)); err != nil {
		return err
	}
	if err := commit(ctx, quiet, conn); err != nil {
		return err
	}
	done = true
	return nil
}

// commit tries again while readers are in the way: a rollback would let new ones in.
func commit(ctx, quiet context.Context, conn *sql.Conn) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		_, err := conn.ExecContext(quiet, "COMMIT")
		if !busy(err) || time.Since(start) > commitPatience || sleep(ctx, pause) != nil {
			return err
		}
	}
}

// rollBack ends a transaction that may have ended already: SQLite rolls back by itself after some errors, and says
// then that there is none. A second one can be begun only where that is true.
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

// discard closes the connection, instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
