package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
)

var sqliteChecks = []check{
	{"version", sqliteVersion},
	{"file system", sqliteFileSystem},
	{"schema", schema},
	{"sessions", builds},
	{"privileges", sqlitePrivileges},
	{"writer", sqliteWriter},
	{"journal", sqliteJournal},
	{"transactions", sqliteTransactions},
	{"settings", sqliteSettings},
}

// sqliteVersion tells the version in this command: an application has its own.
func sqliteVersion(ctx context.Context, e *examination) ([]finding, error) {
	var version string
	if err := e.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return nil, err
	}
	return found(fine("this command has SQLite " + version + "; an application has its own, 3.35 or later"))
}

// fileSystem is the file system of a file.
type fileSystem struct {
	name  string
	level level // isProblem: a network's; isUnknown: it may be one
}

func sqliteFileSystem(_ context.Context, e *examination) ([]finding, error) {
	folder, err := folderOf(e.file)
	if err != nil {
		return nil, err
	}
	is, err := fileSystemOf(folder)
	if err != nil {
		return nil, err
	}
	return found(is.judge())
}

func (f fileSystem) judge() finding {
	switch f.level {
	case isProblem:
		return problem("the file is on "+f.name+
			", a file system of a network: SQLite's locks do not exclude other machines there, and WAL breaks",
			"move it to a disk of this machine; for several machines use PostgreSQL, MySQL or MariaDB")
	case isUnknown:
		return unknown("the file is on "+f.name+", which may be of a network", "see that it is a disk of this machine")
	}
	return fine("the file is on " + f.name)
}

// real returns the file as SQLite names it, after following a link: SQLite makes its other files
// beside that one. If SQLite does not answer, the checks will report that.
func (e *examination) real(ctx context.Context) (file string) {
	var number int
	var name string // main comes first
	if err := e.QueryRowContext(ctx, "PRAGMA database_list").Scan(&number, &name, &file); err != nil {
		return e.file
	}
	return file
}

// folderOf returns the folder of a file, which may still be a link if SQLite follows none.
func folderOf(file string) (string, error) {
	is, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Dir(is))
}

// sqlitePrivileges checks the file, the folder, and the files beside it, which SQLite makes.
func sqlitePrivileges(_ context.Context, e *examination) (made []finding, err error) {
	folder, err := folderOf(e.file)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{folder, e.file, e.file + "-wal", e.file + "-shm"} {
		switch err := writable(path); {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, errors.ErrUnsupported):
			return append(made, unknown("whether the file and its folder are writable is not known on this system",
				"see that they are")), nil
		case err != nil:
			made = append(made, problem(fmt.Sprintf("this user may not write %s: %v", path, err),
				"clients write the file, and make others beside it: grant both"))
		}
	}
	if len(made) == 0 {
		made = append(made, fine("this user may write the file and its folder"))
	}
	return made, nil
}

// sqliteBusy is a result code of SQLite: https://sqlite.org/rescode.html.
const sqliteBusy = 5

// sqliteWriter takes the write lock, and releases it.
func sqliteWriter(ctx context.Context, e *examination) (made []finding, err error) {
	conn, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", e.write.Milliseconds())); err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if busy := new(sqlite.Error); errors.As(err, &busy) && busy.Code()&0xff == sqliteBusy {
		return found(note(fmt.Sprintf("another connection has kept the write lock of the file for %v: no other can "+
			"lock or unlock meanwhile", e.write), "commit sooner: a transaction that writes should take milliseconds"))
	}
	if err != nil {
		return nil, err
	}
	if e.tables.Version > 0 {
		// BEGIN does not fail if the file is read-only.
		if _, err := conn.ExecContext(ctx, "DELETE FROM dblock_schema WHERE false"); err != nil {
			made = append(made, problem(fmt.Sprintf("the file cannot be written: %v", err), "clients cannot, either"))
		}
	}
	if _, err = conn.ExecContext(ctx, "ROLLBACK"); err == nil && len(made) == 0 {
		made = append(made, fine("the write lock was free"))
	}
	return made, err
}

// sqliteJournal checks whether the file is in WAL mode. The file keeps no other journal mode: those
// belong to connections.
func sqliteJournal(ctx context.Context, e *examination) ([]finding, error) {
	var mode string
	if err := e.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return nil, err
	}
	if mode != "wal" {
		return found(note("the file is not in WAL mode: readers and writers wait for each other, and a commit for "+
			"the disk twice", "PRAGMA journal_mode = WAL, once; never OFF or MEMORY"))
	}
	return found(fine("the file is in WAL mode"))
}

// longWAL is four times the size at which SQLite begins to copy the log back. An unending reader
// prevents that copy.
const longWAL = 16 << 20

// sqliteTransactions judges the size of the log: nothing lists the readers.
func sqliteTransactions(_ context.Context, e *examination) ([]finding, error) {
	info, err := os.Stat(e.file + "-wal")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found(fine("there is no log (-wal), and so nothing that a reader holds back"))
	case err != nil:
		return nil, err
	case info.Size() > longWAL:
		return found(note(fmt.Sprintf("the log (-wal) has %d MB: a transaction that reads for long keeps it from "+
			"being copied back, or one that wrote much did", info.Size()>>20),
			"end transactions that only read; PRAGMA wal_checkpoint(TRUNCATE) when no connection reads"))
	}
	return found(fine(fmt.Sprintf("the log (-wal) has %d kB", info.Size()>>10)))
}

// sqliteSettings names the settings that cannot be seen from here.
func sqliteSettings(context.Context, *examination) ([]finding, error) {
	return found(unknown("synchronous and busy_timeout are settings of the application's own connections",
		"leave synchronous at NORMAL or above: with OFF a crash of the machine can undo grants"))
}
