package mysql

import (
	"database/sql"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/named"
)

// Named keeps locks in the server's named locks, GET_LOCK: no tables and no migrations, exclusive,
// first come first served over all clients. There are no tokens. A lock lives exactly as long as
// the one connection that holds it: a network that drops the connection, a failover or a KILL lose
// all locks of the client at once. The client notices within a second of the end of its connection.
// Shared and LockTx are ErrUnsupported: no named lock is shared, and none ends with a transaction.
// New, on tables, has LockTx.
//
// The pool stays the application's. A client keeps one of its connections for all locks that it
// holds, and one for each name that it waits for, up to 16 and up to half of what the pool allows
// beside. For further names it polls. The pool must allow three. A wait survives the end of its
// connection and a server that is away for less than the client's TTL; it then queues again, at the
// end.
//
// A process that is stopped while it waits (SIGSTOP, a paused container) holds up the other waiters
// of the name for 10 s when its turn comes: then the server ends its connection, with wait_timeout.
// A process that is stopped while it holds locks keeps them until it goes on or its connection
// ends.
//
// The client sees the end of the connection by looking at its socket, four times a second, which
// costs the server nothing. Where the driver cannot look (checkConnLiveness=false, a driver wrapped
// around it, a dialer whose connections hide their socket, Windows) a statement asks twice a second
// instead. A connection that goes silent without an end (a cable, a firewall that forgets) is
// noticed by TCP keepalive alone: by the client after some two minutes; by the server, which keeps
// the locks until then, when its system says so (net.ipv4.tcp_keepalive_time on Linux: two hours).
//
// With a readTimeout in the DSN a place in a queue is given up and taken again each time that two
// thirds of it are over, so that clients are served in no strict order. It must be two seconds or
// more.
//
// Some servers are refused with the first lock, before it is taken: a Galera cluster, or a group
// with several primaries, since each node has named locks of its own; a proxy that spreads
// statements over connections, where it shows (ErrConfig); a replica or a server that is read-only
// (ErrReadOnly). A server that becomes read-only while locks are held has been demoted: the locks
// are lost with the client's next statement. They are also lost where a KILL QUERY from outside
// hits that statement.
//
// Named locks are the whole server's, not the database's: applications that share a server exclude
// each other where they use the same names. See NamedKey.
func Named(db *sql.DB) driver.Engine[*sql.Tx] {
	return driver.Engine[*sql.Tx]{Native: named.New(db)}
}

// NamedKey is what a name is to GET_LOCK, and to IS_USED_LOCK in a console, for ever: "dblock/" and
// the name where that is at most 56 bytes of a to z, 0 to 9 and . _ : / -, and otherwise "dblock="
// and the SHA-256 of the name in lower-case base32 without padding. Other letters are hashed
// because servers differ in which of them are the same: to MySQL A is a, to MariaDB it is not. The
// first waiter holds the key with a "+" behind it: the queue.
func NamedKey(name string) string { return named.Key(name) }
