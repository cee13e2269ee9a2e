package dblocktest

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/sqlite"
)

// Database is a process with a client, on an SQLite database of the test's own. It is safe for
// concurrent use.
type Database struct {
	// Client is a real client on the engine of package sqlite. The test may close it; otherwise the
	// end of the test does.
	Client *dblock.Client[*sql.Tx]
	// DB is the application's pool, in which it makes its own tables. All processes of the database
	// share it. The end of the test closes it, and deletes the database.
	DB *sql.DB
}

// drivers lists the names under which drivers of SQLite register themselves.
var drivers = []string{"sqlite", "sqlite3"}

// settings has the settings of every connection, as modernc.org/sqlite and ncruces/go-sqlite3 read
// them, and as mattn/go-sqlite3 does. The operating system decides when it writes to the disk: the
// database need not survive a crash of the machine.
const settings = "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)" +
	"&_journal_mode=WAL&_synchronous=OFF&_busy_timeout=5000"

// SQLite makes a database with all of dblock's tables, and a process on it: for code that locks
// inside its transactions, with Guard, UnlockTx, LockTx, or packages fence and optimistic. The test
// imports a driver: modernc.org/sqlite, github.com/mattn/go-sqlite3 or
// github.com/ncruces/go-sqlite3; without a driver the test ends. The database is a file in a
// temporary folder of the test's, in WAL mode and without synchronous writes. A database in memory
// would be another in each connection, or allow no reads while a transaction writes. A writer waits
// for another for up to 5 s. The client logs to the test, unless an option says otherwise. When the
// test ends the client is closed, and releases its locks.
func SQLite(t testing.TB, options ...dblock.Option) *Database {
	t.Helper()
	i := slices.IndexFunc(drivers, func(name string) bool { return slices.Contains(sql.Drivers(), name) })
	if i < 0 {
		t.Fatal(`dblocktest: SQLite needs a driver: import _ "modernc.org/sqlite" in the test, or another`)
	}
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(filepath.Join(t.TempDir(), "test.db"))}
	db, err := sql.Open(drivers[i], file.String()+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tables, err := migrations.SQL(migrations.SQLite, false, migrations.Sets...)
	if err == nil {
		_, err = db.Exec(tables)
	}
	if err != nil {
		t.Fatalf("dblocktest: SQLite: %v", err)
	}
	return (&Database{DB: db}).Another(t, options...)
}

// Another makes a second process on the same database, with a client and options of its own. It
// ends with its test, which may be a subtest.
func (d *Database) Another(t testing.TB, options ...dblock.Option) *Database {
	t.Helper()
	return &Database{Client: newClient(t, sqlite.New(d.DB), options), DB: d.DB}
}
