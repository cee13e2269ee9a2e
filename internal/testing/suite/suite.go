// Package suite is the behaviour of dblock, as one suite that every engine must pass. It goes
// through the public API, as an application would, and looks at the tables with SQL of its own.
//
// Each engine brings a Wiring and nothing else. Engines differ in how a pool is opened, and in how
// an application may have set up its sessions. Where a database cannot do what a test needs (kill a
// connection of SQLite, say), the test does the closest thing that is possible, and says so.
package suite

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// Wiring is one way to open an engine.
type Wiring struct {
	Name     string
	Kind     string // of server, as dbtest names it
	Open     Open
	ByView   func(driver.Backend) // has the engine read the clock's view where it does not by itself; nil: it does
	Usual    *Setting             // of all tests
	Reach    Reach                // which lists it runs
	Settings []Setting
	// ReadOnly change a DSN so that nothing can be written through it.
	ReadOnly []Setting
	// Through, of an engine without SQL, shows its tables in the test's own database while do runs,
	// and takes over what do has changed there. Nothing else happens to the tables meanwhile. Such
	// an engine has no connections, transactions and migrations: what is about these is left out.
	Through func(t testing.TB, db dbtest.Database, look *sql.DB, change bool, do func())
}

// Setting is something that an application may have chosen for its own sessions.
type Setting struct {
	Name  string
	DSN   func(dsn string) string
	Apart bool // others have no meaning beside it
}

// atOnce is how many tests run side by side. They wait more than they work, so that it is more than
// go test's own number, which is that of the processors; and less than a server's connections are
// good for.
const atOnce = 5

// Reach is how far a wiring goes down the lists of sentences: what is the same for another wiring
// need not be tried twice. With DBLOCK_TEST_ALL, which scripts/test -all sets, each goes one
// further.
type Reach int

const (
	// All is every list. One wiring on a server has it, and the engine in memory.
	All Reach = iota
	// EachServer leaves out the lists about the client's own ways: which requests it sends is the
	// same on each engine, and package oracle and package contracts show on each that it does with
	// them what the others do.
	EachServer
	// EachDriver runs what depends on the driver, the pool and the application's transactions.
	// Another wiring sends the same statements to the same server.
	EachDriver
)

// unabridged reports whether nothing is left out: scripts/test -all.
func unabridged() bool { return os.Getenv("DBLOCK_TEST_ALL") != "" }

// lists are the lists of sentences that the wiring runs, those of the driver first. What runs one
// at a time before them is not among them.
func (w Wiring) lists() [][]placed {
	lists := [][]placed{sessions, telling, contexts, closings, mistakes, w.tests()}
	if w.Through == nil {
		lists = append(lists, faults, guards, outages, transactions, endedInServer, borrowing, otherDatabase,
			refusals)
	}
	if w.Reach == EachDriver {
		return lists
	}
	lists = append(lists, waiting, trying, endings, passing, deadlocks, batches, once, names)
	if w.Through == nil {
		lists = append(lists, afterUnlockTx, takingOver, crashes, detachingGuarded, people, roles, upgrading)
	}
	if w.Reach == EachServer {
		return lists
	}
	return append(lists, input, likeProtocol, reaping, sharing, permits, together, detaching,
		revoking, owners, moments, schedules, extending, inspecting, chains, listing, events, looking)
}

// Run runs the suite, each test in a database that no other test uses meanwhile.
func Run(t *testing.T, w Wiring) {
	if w.Reach > All && unabridged() {
		w.Reach--
	}
	t.Run(w.Name, func(t *testing.T) {
		dbtest.Need(t, w.Kind)
		run := func(test placed) {
			t.Run(test.says, func(t *testing.T) { test.run(t, test.env(t, w)) })
		}
		first := firstOnDrivers
		if w.Reach != EachDriver {
			first = slices.Concat(first, firstOnServers)
		}
		rest := slices.Concat(w.lists()...)
		fmt.Printf("sentences: %d\n", len(first)+len(rest)) // for scripts/test, which says how many have ended
		for _, test := range first {
			run(test)
		}
		tests := make(chan placed)
		var running sync.WaitGroup
		hands := atOnce
		if w.Kind == SQLite { // which works in this process, and writes one at a time
			hands = 4
		}
		for range dbtest.AtOnce(hands) {
			running.Go(func() {
				for test := range tests {
					run(test)
				}
			})
		}
		for _, test := range rest {
			tests <- test
		}
		close(tests)
		running.Wait()
	})
}

// firstOnDrivers are the tests that count goroutines, of which others have some, and those that
// keep the machine busy, so that it would have no time for the time of others.
var firstOnDrivers = inPlaces(own{
	{"when its clients are closed nothing runs and nothing is left in the tables", nothingIsLeft},
	{"at most one of 256 goroutines in 4 clients holds a lock", func(t *testing.T, e *env) {
		exclusion(t, e, 4, 64, 1)
	}},
	{"killing connections while many lock and unlock loses no update and leaves nothing behind", killedUnderLoad},
})

// firstOnServers are those of them that depend on the statements alone.
var firstOnServers = inPlaces(own{
	{"tokens rise across grants, restarts of clients, and purges", tokens},
	{"eight sweeps at once over 200 orphaned locks hand each on exactly once", sweepsAtOnce},
}, flowing{
	{"a client keeps 10,000 locks with one row written by each heartbeat", tenThousand},
})

// settings are tried all at once but for those that exclude others. Of two that contradict each
// other the later one counts. DBLOCK_TEST_MATRIX asks for each by itself, and scripts/test -all on
// SQLite, where they cost little.
func (w Wiring) settings() (all []Setting) {
	if os.Getenv("DBLOCK_TEST_MATRIX") != "" || w.Kind == SQLite && unabridged() || len(w.Settings) == 0 {
		return w.Settings
	}
	all = []Setting{{Name: "every setting at once", DSN: func(dsn string) string {
		for _, s := range w.Settings {
			if !s.Apart {
				dsn = s.DSN(dsn)
			}
		}
		return dsn
	}}}
	for _, s := range w.Settings {
		if s.Apart {
			all = append(all, s)
		}
	}
	return all
}

// tests are those of the wiring's own settings.
func (w Wiring) tests() []placed {
	var settings moving
	for _, s := range w.settings() {
		settings = append(settings, test{"with " + s.Name, func(t *testing.T, e *env) {
			e.set(t, s)
			core(t, e)
		}})
	}
	var readOnlys own
	for _, s := range w.ReadOnly {
		readOnlys = append(readOnlys, test{"a database that is read-only by " + s.Name + " is told as such at once",
			func(t *testing.T, e *env) { readOnly(t, e, s) }})
	}
	return inPlaces(settings, readOnlys)
}

// Kinds of server, for wirings.
const (
	Postgres = dbtest.KindPostgres
	MySQL    = dbtest.KindMySQL
	MariaDB  = dbtest.KindMariaDB
	SQLite   = dbtest.KindSQLite
	TiDB     = dbtest.KindTiDB
	Vitess   = dbtest.KindVitess
)

// plain reports whether all work is done on connections that the client has reserved, in
// transactions of several statements, and waiters poll.
func (w Wiring) plain() bool { return w.Kind == TiDB || w.Kind == Vitess }

// reserves reports whether a client reserves connections of the application's pool.
func (w Wiring) reserves() bool { return w.Kind != Postgres && w.Kind != SQLite }
