package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/advisory"
)

// Advisory keeps locks in PostgreSQL's advisory locks: no tables and no migrations, shared and
// exclusive, first come first served over all clients. There are no tokens. A lock lives exactly as
// long as the one connection that holds it: a network that drops the connection, a failover or
// pg_terminate_backend lose all locks of the client at once. The client notices within a second of
// the end of its connection.
//
// The pool stays the application's. Beside the pool, outside its budget and with its configuration
// and hooks, a client opens one connection for all locks that it holds, and one for each name that
// it waits for, up to 16. For further names it polls. A wait survives the end of its connection and
// a server that is away for less than the client's TTL; it then queues again, at the end. A
// connection that waits runs a statement for as long, which keeps back VACUUM like any long query;
// the connection that holds the locks does not. The application's timeouts for statements, waits
// and sessions are switched off on these connections.
//
// A process that is stopped while it waits (SIGSTOP, a paused container) holds up the other waiters
// of the name for 10 s when its turn comes: then the server ends its session, with
// idle_in_transaction_session_timeout. A process that is stopped while it holds locks keeps them
// until it goes on or its connection ends.
//
// A connection that goes silent without an end (a cable, a firewall that forgets) is noticed by TCP
// alone, on both sides:
// tcp_keepalives_idle=10&tcp_keepalives_interval=5&tcp_keepalives_count=3&tcp_user_timeout=30000 in
// the connection string makes the server free the locks of such a client, and a net.Dialer with
// KeepAliveConfig in DialFunc makes the client notice.
//
// Two kinds of servers are refused with the first lock, before anything is taken: a pooler that
// lends connections by the transaction, since locks would stay with connections that others use
// (ErrConfig), and a standby, whose locks do not exclude clients of the primary (ErrReadOnly).
// LockTx works through a pooler: what it takes ends with the transaction.
//
// Advisory locks are per database. Two names with the same key are one lock: see AdvisoryKey.
func Advisory(pool *pgxpool.Pool) driver.Engine[pgx.Tx] {
	return driver.Engine[pgx.Tx]{Native: advisory.New(pool)}
}

// AdvisoryKey is the key of a name: what pg_locks shows, as classid (the upper half) and objid (the
// lower half), and what pg_advisory_lock takes in psql. It is the first 8 bytes, most significant
// first, of the SHA-256 of "dblock:" and the name, for ever. Each name has a second key, of
// "dblock:queue:" and the name, for its queue.
//
// Two names of the same key exclude each other, and do no other harm. Among n names some two have
// the same key with a probability of n²/2⁶⁵: one in 37 million with a million names.
func AdvisoryKey(name string) int64 { return advisory.Key(name) }

// AdvisoryQueueKey is the second key of a name. The first of its waiters has it, and waits for the
// key of the name; the others wait for this one.
func AdvisoryQueueKey(name string) int64 { return advisory.QueueKey(name) }
