// Package dblocktest tests applications that lock with dblock, without a database server.
//
//	func TestReport(t *testing.T) {
//		f := dblocktest.New[pgx.Tx](t)
//		app := NewApp(f.Client) // a *dblock.Client[pgx.Tx]
//		…
//	}
//
// The client is the real one. Only the engine below it is another: tables in memory, which keep the
// promises of the engines on databases and pass the same suite of tests. So the client queues,
// transfers, sends heartbeats, loses locks, finds deadlocks and closes as it does on a server, and
// returns the same errors. A Fake takes some 30 µs to make, and closes itself when the test ends.
//
// # Processes
//
// A Fake is one process with its client. Another is a second process on the same database. With
// Hold a further process holds a name, and with Queue it waits for one, without code of the test.
//
// # Failures
//
// Lose takes one lock away from its holder, and LoseName takes a name from its holder. Down cuts a
// process from the database, until Up. A process that is Down for longer than the TTL loses all of
// its locks, and others get them:
//
//	f.Down()
//	f.Advance(f.Client.TTL()) // lock.Context has ended, and f.Another(t) gets the name
//
// # Time
//
// Advance moves the clock of the database and of the clients of all its processes: leases, TTLs,
// slots of OncePer and cool-downs (MinHold). Other clocks do not move: a context with a deadline,
// WaitAtMost, a ticker of the application, time.Now.
//
// In a bubble of testing/synctest all of them move. There Advance is time.Sleep and synctest.Wait,
// and both may be used in its place. Make the Fake inside the bubble.
//
// # Transactions
//
// A Fake has none. Client.Guard, Client.UnlockTx and Client.LockTx need a transaction that commits
// or rolls back with the lock, which tables in memory cannot see. There they return ErrUnsupported,
// with the reason. Packages fence and optimistic need a database, too. Packages election and quorum
// work. TX is still the application's own type, so that its functions take the client.
//
// SQLite makes a small database for code with transactions of database/sql, with the engine that
// applications have on SQLite, and one line to set up:
//
//	import _ "modernc.org/sqlite"
//
//	func TestTransfer(t *testing.T) {
//		d := dblocktest.SQLite(t)
//		app := NewApp(d.DB, d.Client) // a *sql.DB and a *dblock.Client[*sql.Tx]
//		…
//	}
//
// There time is real. Client.Break takes a lock from its holder, and Another is a second process.
package dblocktest
