package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// borrow gives fn a connection of the pool on which no statement waits inside SQLite. The
// connection returns to the pool with its original settings, or is discarded.
func (d *database) borrow(
	ctx context.Context, commits durability, fn func(quiet context.Context, conn *sql.Conn) error,
) (err error) {
	conn, err := d.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	quiet := context.WithoutCancel(ctx)
	own, err := settingsOf(quiet, conn, commits)
	if err != nil {
		return err
	}
	if set, reset := own.forBorrowing(); set != "" {
		defer func() {
			if _, err := conn.ExecContext(quiet, reset); err != nil {
				discard(conn)
			}
		}()
		if _, err := conn.ExecContext(quiet, set); err != nil {
			return err
		}
	}
	err = fn(quiet, conn)
	if code, coded := codeOf(err); coded && code == sqliteError && !migrated(quiet, conn) {
		return driver.Fail(driver.ErrSchema, err)
	}
	return err
}

// settings are the settings of a connection that borrow changes for a moment.
type settings struct {
	patience int64 // the busy timeout, in milliseconds
	full     bool  // commits may skip the wait for the disk that the application's commits have
}

// settingsOf reads the pragmas one by one, for two microseconds each. One SELECT from the pragmas'
// table-valued functions costs twenty.
func settingsOf(ctx context.Context, conn *sql.Conn, commits durability) (own settings, err error) {
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&own.patience); err != nil || commits == asSet {
		return own, err
	}
	var level int
	if err := conn.QueryRowContext(ctx, "PRAGMA main.synchronous").Scan(&level); err != nil || level != full {
		return own, err
	}
	var journal string
	err = conn.QueryRowContext(ctx, "PRAGMA main.journal_mode").Scan(&journal)
	own.full = journal == "wal" // with another journal NORMAL can break the file
	return own, err
}

// forBorrowing returns the statements that change the settings and that restore them. Both are
// empty if nothing needs a change.
func (own settings) forBorrowing() (set, reset string) {
	if own.full {
		set, reset = "PRAGMA main.synchronous = NORMAL;", "PRAGMA main.synchronous = FULL;"
	}
	if own.patience != 0 {
		set += "PRAGMA busy_timeout = 0"
		reset += fmt.Sprintf("PRAGMA busy_timeout = %d", own.patience)
	}
	return set, reset
}

// discard closes the connection instead of returning it to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
