// Package dblocktest tests applications that lock with dblock, without a database.
//
//	func TestReport(t *testing.T) {
//		f := dblocktest.New[pgx.Tx](t)
//		app := NewApp(f.Client) // a *dblock.Client[pgx.Tx]
//		…
//	}
//
// The client is the real one. Only the engine below it is another: tables in memory, which keep the
// promises of the engines on databases and pass the same suite of tests. So the client queues,
// hands on, beats, loses, finds deadlocks and closes as it does on a server, and returns the same
// errors. A Fake takes some 30 µs to make, and closes itself when the test ends.
//
// # Processes
//
// A Fake is one process with its client. Another is a second process on the same database. With
// Hold a further process has a name, and with Queue it waits for one; the test need not write it.
//
// # What can go wrong
//
// Lose takes one lock away from its holder. Down cuts a process from the database, until Up. A
// process that is Down for longer than the TTL loses all of its locks, and others get them:
//
//	f.Down()
//	f.Advance(f.Client.TTL()) // lock.Context has ended, and f.Another(t) gets the name
//
// # Time
//
// Advance lets time go on for the database and for the clients of all its processes: leases, TTLs,
// slots of OncePer and cool-downs (MinHold). Other clocks do not move: a context with a deadline, a
// ticker of the application, time.Now.
//
// In a bubble of testing/synctest all of them move. There Advance is time.Sleep and synctest.Wait,
// and both may be used in its place. Make the Fake inside the bubble.
//
// # Transactions
//
// There are none. Lock.Guard, Lock.UnlockTx and Client.LockTx need a transaction that commits or
// rolls back with the lock, which no memory can see. They return ErrUnsupported, and say so. Test
// code that calls them with SQLite in a temporary folder (migrate.Up, then sqlite.New), or on a
// server. TX is the application's own type all the same, so that its functions take the client.
// Packages fence and optimistic need a database, too. Packages election and quorum work.
package dblocktest
