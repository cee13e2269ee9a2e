package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// borrow gives fn a connection of the pool on which nothing waits inside SQLite. The connection
// goes back with the settings that it had, or not at all.
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

// settings are those of a connection that a borrower changes.
type settings struct {
	patience int64 // the busy timeout, in milliseconds
	full     bool  // the borrower's commits need not wait for the disk as those of the application do
}

// settingsOf reads them one by one, which costs two microseconds each. One SELECT from the tables
// that pragmas are as well costs twenty.
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

// forBorrowing returns the statements that make the settings, and that put them back; none: nothing
// is to be changed.
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

// discard closes the connection, instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
