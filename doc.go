// Package dblock is distributed locks in the database that an application already has: PostgreSQL, MySQL, MariaDB, or
// SQLite for one machine. No new server and no sidecar: the lock is a row, its queue is a table, and any number of
// processes that share the database share the locks.
//
//	client, err := dblock.New(postgres.New(pool))
//	…
//	lock, err := client.Lock(ctx, "invoice/42") // waits, first come first served, until ctx ends
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//	charge(lock.Context(), lock.Token())
//
// # Terms
//
// A client opens a session in the database, one row, which dies once and for good. A heartbeat keeps it alive: one
// row written every fifth of the TTL, however many locks hang on the session. A lock is a row that names its holder's
// session, with a fencing token that rises with every grant. Who has to wait takes a ticket in the lock's queue and
// holds no connection while waiting; a release gives the lock to the lowest ticket whose session lives, in the same
// commit, and wakes it. A grant to a waiter is a hand-off: it owns the lock from that commit on.
//
// # Sharing
//
// A mutex, a reader, a writer and a permit are one weighted, queued lock with different units: who locks wants all of a name,
// or with Shared one unit of as many as anybody could want, or with Permits some of a number. The whole name is held in its
// own row, a share in a row of its own with a token of its own, and the units that are given out are counted in the name's row.
// There is one queue for all. A release, a death, a waiter that leaves: whatever makes room hands on, in the same transaction,
// to the first in the queue and to those behind him who fit, until one who does not. So readers next to each other come in
// together, a writer who waits holds back the readers behind him, and a large request is not overtaken by small ones.
// Lock.Downgrade makes a reader of a writer without a gap; Lock.TryUpgrade a writer of the only reader, at once or not at all.
//
// Client.LockAll takes many names, in the order of their bytes whatever the order given, those that are free in one transaction.
// Who waits for others who wait for him finds out after a second (WithDeadlockCheck), and gives up if he is the one who began to
// wait last: ErrDeadlock. It works for owners as they travel in contexts (see Reentrancy): who locks a second name under the
// first lock's Context is one owner, who does so under another context is two.
//
// # What else the tables are good for
//
// Client.OncePer runs a job at most once in each slot of the database's clock; MinHold keeps a name from being taken again too
// early. Client.Ask tells a holder that somebody wants the name, Client.Break takes it away: with a new token for the next, after
// transactions that the holder guards, and on record. Client.Inspect, List and Watch show who holds and who waits; Events is
// what happened. Package election elects leaders with the same queue, package quorum keeps one lock in several databases.
//
// # What is promised
//
// Exclusion: while Lock.Context is live, nobody else holds the name, as long as this process is not stopped between
// looking at its context and acting for longer than its margin (1 % of the TTL and two round trips), and the clocks
// of this machine and of the database run at the same rate within 1 %. No clock is ever compared with another: the
// client counts the TTL from before it sent its last successful heartbeat, the database from when it ran it.
//
// Fencing: whatever pauses, restarts, failovers or purges do, tokens of a name rise strictly in the order of its grants.
// A token is the larger of the last one plus one, and the microseconds since 1970 on the database's clock; it fails
// only where a server that lost commits has a clock that is behind by more than the time since then. It is computed under the
// lock of the name's row: a row that was missing is made first, and free, since an insert may stand for as long as another row
// of the name comes and goes. On MySQL and MariaDB, whose clock is that of a statement's start, tokens would fall only if two
// statements stood still at once for longer than the reaper's Retention.
//
// Fairness: waiters are granted in the order in which they were queued, over all processes. Neither TryLock nor the
// fast path passes a queue. A dead waiter is passed over.
//
// Liveness: a crashed holder is succeeded within TTL + 1 s by whoever waits, with no operator and no reaper. A clean
// release hands over within one commit and one notification.
//
// Thrift: a lock that is held or waited for needs no connection. A client has one connection of its own for heartbeats, one
// for its transactions (PostgreSQL over pgx: only while it works beside transactions of the application's) and, from the
// first time that it waits, one to listen (two on MariaDB, none on database/sql with PostgreSQL). For more transactions at
// a time it opens more, up to 8 in all on MySQL and MariaDB and 2 on PostgreSQL. SQLite needs none.
//
// Ambiguity is resolved: every attempt carries an id. After an error or a cancelled context the library finds out, by
// that id, whether it got the lock after all, and gives back what nobody claims. What a session has is compared with
// what its client believes with each heartbeat (once in a TTL where it holds nothing, or has more than 64 locks and places in
// queues) and after each lost connection.
//
// The caller's things stay the caller's: pools are never closed, and no statement is killed that is not dblock's own.
//
// # What is not
//
// A lease is a hint to code that ignores the token: a process that is stopped for longer than its TTL and then goes on
// writing can only be refused by whoever checks the token. What Break takes away is taken from a holder that lives, and learns of
// it a moment later. SQLite is for one machine; where its file is deleted or replaced
// under a running process, two holders are possible for TTL/5. With asynchronous replication a
// failover can lose the latest grants: then two clients may believe in the same lock until the older one compares its
// belief, which it does as soon as its connection breaks; tokens still rise. A database clock that is set forward by
// more than the TTL ends the sessions of all clients, a clock set back keeps dead ones alive for as long. Where a dblock is
// stopped in the middle of a transaction, by SIGSTOP say, or its host vanishes, the name's row stays locked for a while. On
// PostgreSQL over pgx a transaction is one round trip and has no middle. Over database/sql the server ends it after half a
// TTL of silence, on MySQL and MariaDB after a TTL. SQLite has nobody who could end it: there the whole database stays
// locked until the process goes on or dies.
//
// # Inside transactions
//
// Lock.Guard, Lock.UnlockTx and Client.LockTx run in a transaction of the application's, on the database that has the
// locks. Guard share-locks a row that belongs to this one hold of the lock. The first Guard of a hold makes that row, in a
// transaction of dblock's own that locks the lock's row and finds the hold there. Whoever takes the lock over, from a dead
// session, from a fixed lease, by Break, or as the same owner elsewhere, locks the guard's row without waiting, and writes it, so
// that a snapshot from before cannot say yes. Other locks of the client are taken over beside a guarded transaction. Heartbeats
// are another row, and the queue is counted in the lock's, which Guard does not keep locked: nobody waits for it. A Break that
// meets a guarded transaction keeps new ones of this lock from beginning for two seconds, and tries again.
//
// LockTx locks the lock's own row until the transaction ends. On PostgreSQL it does so by a write that changes nothing,
// since a row lock alone leaves no trace: who waited with an older snapshot must fail and not go on. Leases meet the lock
// there: what needs a row that is locked for longer than dblock's own transactions take comes back later, and has no
// connection in between; while it asks, for 20 to 100 ms, it has one. Who waits with LockTx for other transactions has a
// place in the database's own order; who waits for a lease queues up for a lease of its own, which then stands behind the
// transaction and is given back after it. A lease that finds the row locked is not in any queue: between leases and
// transactions there is exclusion, and no order.
//
// On MySQL and MariaDB a transaction locks rows and no gaps between them, at every isolation level, so that nobody who uses
// another name waits for it: the row of a new name is made on a connection of dblock's own first, and no purge takes it for
// ten minutes. A transaction that waits holds a named lock (GET_LOCK) on its connection meanwhile, by which the wait is found
// and ended when the context ends.
//
// The library never ends such a transaction, never retries in it, and never passes it a context that ends, which would
// break its connection. On PostgreSQL each step is behind a savepoint. On MySQL and MariaDB a row that was locked stays
// locked until the end, a deadlock ends the transaction, and so does a lock wait that times out where
// innodb_rollback_on_timeout is on: the error says so. On SQLite whoever writes has locked the whole database.
//
// # Locks without tables
//
// Advisory locks (postgres.Advisory) and named locks (mysql.Named) live exactly as long as the client's one connection.
// When that ends, every Lock.Context of the client ends with ErrLost, within a second of the end being visible; a network
// that goes silent is visible to TCP only. There are no tokens: Token is 0, Guard is ErrUnsupported. They are first come
// first served over all clients, in a queue that the server keeps: a second lock of each name, which whoever takes the
// first takes before. A Lock that waits survives a server that is away for less than a TTL, as often as that happens; after
// that it is ErrUnavailable. A wait that begins anew queues at the end. A process that is
// stopped while it waits holds up those behind it for 10 s when its turn comes; one that is stopped while it holds a lock
// keeps it. Strangers who use the server's functions with postgres.AdvisoryKey or mysql.NamedKey are excluded,
// but do not queue. LockTx with advisory locks is in the same queue, waits for what its own client holds, and ends with the
// transaction; at REPEATABLE READ and SERIALIZABLE, a transaction whose first statement it is sees the database as of
// before the wait. Named locks know no transactions and no sharing.
//
// # Upgrades
//
// The tables say from which build on they are usable. A build works with every later version that does not refuse it, beside
// newer builds, and returns ErrSchema with what to do otherwise. A session whose tables are migrated underneath to a version
// that refuses its build ends with its next heartbeat: its locks are lost (ErrLost), with that reason. docs/upgrading.md has
// the order of steps and the way back.
//
// # Failures
//
// The database is away: waiters go on waiting and survive it, holders keep their locks until the TTL is over, and new
// locks fail with ErrUnavailable, after one TTL, or at once where the client never reached it. The process dies: its
// session expires, and whoever waits takes over. The listening connection is lost: waiters are polled for until it is
// back. A release cannot be sent: the client goes on giving it back in the background, until the session ends.
//
// # Reentrancy
//
// A goroutine is no owner in Go, so the owner travels in the context: under Lock.Context, and in the function given to
// Do, the same name locks again at once and is counted. An explicit Owner outlives the process: the restarted process
// enters its own lock again immediately, with a new token, and its old incarnation is fenced.
//
// # Choices
//
// What was tried and measured, or reasoned, before it became so:
//
// A deadlock is looked for once by each waiter, a second after it joined its queue, and then ever more seldom: since an owner
// waits for one thing at a time, a circle is complete when its youngest waiter joins, and that one finds it. All waiters of a
// client who are due are one statement. What it returns is reduced in the client, since a circle through a semaphore is a
// deadlock only if no other units come back (package internal/deadlock).
//
// LockAll holds the names before the one that it waits for. To hold nothing while waiting would mean to start over whenever
// somebody was quicker, and never to get all of them where they are wanted much.
//
// TryUpgrade does not wait: of two readers who waited to become writers, each would wait for the other to stop reading.
//
// How many units a semaphore has is kept in its row while it is in use, and not for longer: then a deployment that changes the
// number changes it when the old processes have let go, and sees ErrCapacity until then, instead of two numbers at once.
//
// An Owner's share does not come back to it after a restart, as the whole name does: its session's end gives it back.
//
// The history is written in batches after the fact, except for Ask, Break and Record, which are written in the transaction that
// does it: a commit for each grant and release would double their price. Who wants proof has tokens.
//
// Whoever holds a lock without ever waiting has no listener: it hears of Ask and Break with its next heartbeat, or at once if it
// called Lock.Asked.
//
// A wake-up brings the grant along, token and all, where nothing in it has to be counted from the moment of the grant: it
// is sent by the commit that makes it, so the waiter need not read it again. Everything else that is heard is only a
// reason to look.
//
// Close gives statements that are under way a second to be answered, and asks once more, when its session is dead, what that
// has: a statement that is cut off may still run on the server, and take a lock that nobody would give back. Likewise a
// Downgrade that was cut off, and turns out not to have run, costs the lock its token, which the late statement would need.
//
// To queue is one statement on PostgreSQL that decides by the lock's row alone; it never takes the lock. Its commit, and
// that of a release when nobody waits, need not reach the disk: a crash can take back a place in a queue, which its owner
// puts back, and a release, which its client repeats. A grant always waits for the disk.
//
// Who is next is decided within UnlockTx on PostgreSQL and SQLite. On MySQL that would take a locking read of a range,
// which locks the neighbours' queues too: there the name is left free with its queue, and whoever notices hands it on,
// Unlock first of all. Likewise Guard reads the lock's row beside the transaction there, on a connection of dblock's own:
// in it, a plain read may be old, and one that is not would lock the row.
//
// A statement cannot be told on MySQL how long it may wait for a row, but it can pass over rows that are locked: so it
// asks again a few times, and the price is one short read before each acquire. On PostgreSQL lock_timeout is set by the
// statement itself.
//
// Packages fence and optimistic know a pgx.Tx by its methods, through reflection: to name the type would put pgx into the
// build of every application on MySQL. They wait for rows in turns, on PostgreSQL longer than deadlock_timeout: of two
// transactions that wait for each other in shorter ones, neither would ever be told.
//
// Named locks are kept on one connection whose socket is looked at four times a second: database/sql has no read that can
// be interrupted, and a ping loop is traffic. Who waits first takes the queue, a second named lock, then sees the lock free,
// and the pinned connection takes it while the queue is still held. A wait is interrupted by a named lock of its own, never by
// a connection id, which a restarted server gives to somebody else.
//
// The statements for PostgreSQL are generated once and run over pgx and over database/sql alike: their texts and
// parameters are the same, and a transaction has to travel as one batch, which generated methods cannot do.
//
// On MariaDB a listener waits for a named lock that a second connection holds, instead of sleeping: KILL QUERY and SLEEP
// share mutexes there in an order that stops every sleeper for two seconds. On MySQL it sleeps.
//
// On SQLite a listener reads a counter of the session's grants, not PRAGMA data_version, which moves with every commit of
// the application, differs between connections of a pool, and stands still for a connection's own commits.
//
// A reaper sweeps every 15 s and not more often, because nobody waits for it.
//
// # Layers
//
// The API and its words are in this package, the statements in postgres, mysql and sqlite, and the contract between
// them in driver. What a server's own locks have in common is in internal/pinned. Packages fence and optimistic stand
// beside the root and need none of it; what they share is internal/transaction. Packages election and quorum stand upon the
// root. Time and goroutines are in internal/session, waiting and waking in internal/wait, circles in internal/deadlock, clearing
// up after the dead in reaper. The root imports no engine, an engine imports no other and not the root.
package dblock
