// Package dblock provides distributed locks in the database that an application already has:
// PostgreSQL, MySQL, MariaDB, TiDB, Vitess, or SQLite on one machine. A lock is a row and its queue
// is a table, so all processes that share the database share the locks. There is no other server to
// run.
//
//	client, err := dblock.New(postgres.New(pool))
//	…
//	lock, err := client.Lock(ctx, "invoice/42") // waits, first-come first-served, until ctx ends
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//	charge(lock.Context(), lock.Token())
//
// # Terms
//
// A client opens one session, which a heartbeat keeps alive for another TTL. All locks of the
// client depend on that session. A waiter has a ticket in the queue of its lock and needs no
// connection. A release grants the lock to the lowest ticket of a live session, in the same commit.
// Each grant has a fencing token, which is higher than all tokens of the name before it.
//
// # Promises
//
//   - Exclusion: while Lock.Context is live, nobody else holds the name. Clocks are never compared;
//     they need to run at the same rate within 1 %.
//   - Fencing: tokens of a name rise with every grant, across pauses, restarts and failovers.
//   - Fairness: waiters of all processes are served in the order in which they queued.
//   - Liveness: a waiter takes over from a crashed holder within TTL + 1 s, without an operator; on
//     the holder's host within a third of a second (WithHostFolder).
//   - Thrift: neither a held lock nor a waiter needs a connection. A client keeps one of its own,
//     or a few: the engine's New says how many. A client that was not used for four TTLs ends its
//     session, closes these, and sends nothing until the next Lock.
//   - Unknown outcomes are resolved: after an error or a cancelled context the client reads whether
//     its request was granted, and releases every lock that no caller received.
//   - The pool stays the application's. It is never closed, and no other query is ever killed.
//
// # Limits
//
// A lease cannot stop a process that ignores it. A process that was suspended for longer than its
// TTL may still write when it wakes up, and a statement of a process that has died may still run in
// the server; only a check of the token refuses that write. Client.Guard does so inside the
// application's own transaction, and package fence does so in any other database. After a failover
// of an asynchronous replica, two clients may believe in one lock until the older one has
// reconnected; the tokens tell them apart. Client.Break takes a lock from a holder that is alive.
//
// # Transactions
//
// Client.Guard makes a transaction commit only if the lock is still held. Client.UnlockTx releases
// the lock with the commit. Client.LockTx holds a name for as long as a transaction lasts, without
// a lease. All of them exclude each other under one name. Package optimistic has version numbers
// for rows that are rarely contended.
//
// # Kinds of locks
//
// Lock takes the whole of a name, Shared takes one of any number of shares, and Permits takes some
// of a fixed number. They share one queue: a large request is not overtaken by small ones. LockAll
// takes several names at once. Package jobs runs a job once in each slot of time, or once for each
// time of a cron expression. Package election elects leaders, and package quorum keeps one lock in
// three or five databases. postgres.Advisory and mysql.Named are clients of the server's own locks:
// they need no tables and have no tokens.
//
// # Reentrancy
//
// The owner of a lock travels in the context. Under Lock.Context, and in the function given to Do,
// the same name is entered again at once and counted, with the same options or with none. With the
// option Owner, a process that was restarted enters its own lock again immediately, and the old
// process is fenced.
//
// # Observing
//
// WithObserver sets callbacks for attempts, locks, heartbeats and the listener (package observe).
// Stats and Ping describe the client. Package inspect shows holders, queues, sessions and the
// history. The log has nothing at level INFO in normal operation. Of an outage it has the first
// failure, later ones at growing intervals, and the end.
//
// Calls of the logger and of the observer are queued, so that no lock waits for them. A goroutine
// makes them in order, a moment later. If the logger or the observer is too slow, calls are left
// out and counted. Close waits a second for the queued ones.
//
// # Failures
//
// While the database is away, waiters keep waiting, holders keep their locks until their TTL has
// passed, and new requests fail with ErrUnavailable after one TTL. If a process dies, the next
// waiter takes over: at once if another process on its host sees that, and otherwise when its
// session has expired. If a release cannot be sent, the client retries it in the background. A
// waiter that finds itself in a cycle of waiters gets ErrDeadlock after about a second. A lock that
// was lost ends its context with ErrLost as the cause.
//
// No call waits for a database for ever: a statement that is not answered within a TTL has failed.
// Ping, CheckSchema, package inspect and the lists of package jobs return ErrUnavailable then, each
// page of a list after two TTLs at most, and ErrClosed when the client is closed meanwhile. Close
// returns within ten seconds.
//
// # Stability
//
// Before 1.0.0 a minor version may change the API, and the changelog says so. Tables serve at least
// two releases at once.
//
// # Further reading
//
// docs/README.md in the repository lists the pages by reader.
package dblock
