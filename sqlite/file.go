package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/driver"
)

// schemaLocation is the database of a connection that has dblock's tables: main, or else the first
// attached one that has them.
type schemaLocation struct {
	main             bool
	path             string // "": no file
	journal, locking string // "": no database has the tables, and path is main's
}

func locateSchema(ctx context.Context, conn *sql.Conn) (schemaLocation, error) {
	names, paths, err := databases(ctx, conn)
	if err != nil {
		return schemaLocation{}, err
	}
	for i, name := range names {
		var n int
		if err := conn.QueryRowContext(ctx,
			"SELECT count(*) FROM "+name+".sqlite_schema WHERE name = 'dblock_locks'").Scan(&n); err != nil {
			return schemaLocation{}, err
		}
		if n == 0 {
			continue
		}
		at := schemaLocation{main: i == 0, path: paths[i]}
		if err := conn.QueryRowContext(ctx, "PRAGMA "+name+".journal_mode").Scan(&at.journal); err != nil {
			return schemaLocation{}, err
		}
		return at, conn.QueryRowContext(ctx, "PRAGMA "+name+".locking_mode").Scan(&at.locking)
	}
	return schemaLocation{path: paths[0]}, nil
}

// place describes where a connection looks for the tables.
func (d *database) place(ctx context.Context) (place string, err error) {
	err = d.withConn(ctx, 0, asSet, func(quiet context.Context, conn *sql.Conn) error {
		at, err := locateSchema(quiet, conn)
		if place = fmt.Sprintf("file %q", at.path); at.path == "" {
			place = "a database in memory"
		}
		return err
	})
	return place, err
}

// databases returns the quoted names and the files of a connection's databases, without temp, in
// the order in which SQLite looks for a table.
func databases(ctx context.Context, conn interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (names, paths []string, err error) {
	rows, err := conn.QueryContext(ctx,
		"SELECT name, coalesce(file, '') FROM pragma_database_list WHERE name <> 'temp' ORDER BY seq")
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, path string
		if err := rows.Scan(&name, &path); err != nil {
			return nil, nil, err
		}
		names, paths = append(names, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`), append(paths, path)
	}
	return names, paths, rows.Err()
}

// file is the database's file as it was when the engine first used it. The zero value cannot be
// checked: the database is in memory, or in a file system of the driver.
//
// In WAL mode SQLite does not notice that its file was deleted or replaced. A process that has the
// file open continues in a file without a name, and every other process locks in the new file.
type file struct {
	path  string
	info  os.FileInfo
	moved string // the file that the pool's path now leads to, if it differs

	beside atomic.Pointer[beside] // its -wal and -shm at the last check; nil: not checked yet
}

func fileAt(path string) *file {
	info, err := os.Stat(path)
	if err != nil {
		return &file{}
	}
	return &file{path: path, info: info}
}

// is reports whether a path leads to the file, or cannot be followed.
func (f *file) is(path string) bool {
	info, err := os.Stat(path)
	return err != nil || os.SameFile(f.info, info)
}

// check fails if the path now leads to another file or to none, and as checkWAL says. It costs a
// few microseconds.
func (f *file) check() error {
	if f == nil || f.info == nil {
		return nil
	}
	if f.moved != "" {
		return driver.Fail(driver.ErrConfig,
			fmt.Errorf("%w: the path of this pool led to %s and now leads to %s, where "+
				"other processes take their locks: close the pool and open it again", driver.ErrReplaced, f.path,
				f.moved))
	}
	info, err := os.Stat(f.path)
	if err == nil && os.SameFile(f.info, info) {
		return f.checkWAL()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return replaced(f.path)
}

func replaced(path string) error {
	return driver.Fail(driver.ErrConfig,
		fmt.Errorf("%w: %s was deleted, moved or replaced while this pool had it open, so that "+
			"other processes take their locks elsewhere: close the pool and open it again", driver.ErrReplaced, path))
}

// follow fails if the pool's path now leads to another file. SQLite resolves links when it opens a
// file and then forgets them, so only a new connection shows the change. The pool opens one when
// all idle ones are taken. follow never waits for a connection: in a full pool it asks the idle
// ones.
func (d *database) follow(ctx context.Context) error {
	f := d.file.Load()
	if f == nil || f.info == nil {
		return nil
	}
	s := d.db.Stats()
	n := s.Idle + 1
	if s.MaxOpenConnections > 0 {
		n = min(n, s.MaxOpenConnections-s.InUse)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var ask func(n int) error
	ask = func(n int) error {
		return d.borrow(ctx, asSet, func(quiet context.Context, conn *sql.Conn) error {
			at, err := locateSchema(quiet, conn)
			switch {
			case err == nil && at.path != "" && !f.is(at.path):
				d.file.Store(&file{path: f.path, info: f.info, moved: at.path})
			case err == nil && n > 1:
				return ask(n - 1)
			}
			return err
		})
	}
	if n > 0 {
		_ = ask(n) // an error tells nothing about the file
	}
	return d.file.Load().check()
}
