package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/connlock"
)

// Advisory keeps locks in PostgreSQL's advisory locks: no tables and no migrations, shared and
// exclusive, first come first served over all clients. There are no tokens, and a lock lives
// exactly as long as the one connection that has it: a network that drops it, a failover or
// pg_terminate_backend lose every lock of the client at once, which notices within a second of the
// end of its connection.
//
// The pool stays the application's. Beside it, outside its budget and with its configuration and
// hooks, a client opens one connection for all locks that it holds, and one for each name that it
// waits for, up to 16 of them; beyond that it looks again and again. A wait survives the end of its
// connection and a server that is away for less than the client's TTL, and queues again, at the
// end. Those that wait run a statement for as long, which keeps back VACUUM like any long query;
// the one that has the locks does not. Timeouts that the application sets for its statements, waits
// and sessions are switched off on them.
//
// A process that is stopped while it waits (SIGSTOP, a paused container) holds up the others that
// wait for the name for 10 s when its turn comes: then the server ends its session, with
// idle_in_transaction_session_timeout. A process that is stopped while it holds locks keeps them
// until it goes on or its connection ends.
//
// A connection that goes silent without an end (a cable, a firewall that forgets) is noticed by TCP
// alone, on both sides:
// tcp_keepalives_idle=10&tcp_keepalives_interval=5&tcp_keepalives_count=3&tcp_user_timeout=30000 in
// the connection string makes the server free the locks of such a client, and a net.Dialer with
// KeepAliveConfig in DialFunc makes the client notice.
//
// Refused with the first lock, before anything is taken: a pooler that lends connections by the
// transaction, since locks would stay with connections that others use (ErrConfig), and a standby,
// whose locks are nothing to the primary (ErrReadOnly). LockTx works through a pooler: what it
// takes ends with the transaction.
//
// Advisory locks are per database, and two names with the same key are one lock: see AdvisoryKey.
func Advisory(pool *pgxpool.Pool) driver.Engine[pgx.Tx] {
	return driver.Engine[pgx.Tx]{Native: advisory{pool}}
}

// AdvisoryKey is the key of a name: what pg_locks shows, as classid (the upper half) and objid (the
// lower), and what pg_advisory_lock takes in psql. It is the first 8 bytes, most significant first,
// of the SHA-256 of "dblock:" and the name, for ever. Each name has a second key, of
// "dblock:queue:" and the name, for those who wait.
//
// Two names of the same key exclude each other, and do no other harm. Among n names some two meet
// with a probability of n²/2⁶⁵: one in 37 million with a million names.
func AdvisoryKey(name string) int64 { return hash("dblock:" + name) }

func queueKey(name string) int64 { return hash("dblock:queue:" + name) }

func hash(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// advisory is the driver.Native, and how its keepers reach the server.
type advisory struct{ pool *pgxpool.Pool }

func (a advisory) Validate() error { return pgxDB(a).validate() }

func (a advisory) Open(log *slog.Logger, ttl time.Duration) driver.Keeper[pgx.Tx] {
	return advisoryKeeper{connlock.New(a, log, ttl)}
}

// advisoryKeeper takes locks for the client with the pinned connection, and for transactions in
// those.
type advisoryKeeper struct {
	*connlock.Keeper[advisoryKeys]
}

// advisoryKeys are the two keys of a name.
type advisoryKeys struct{ lock, queue int64 }

func keysOf(name string) advisoryKeys { return advisoryKeys{AdvisoryKey(name), queueKey(name)} }

func (a advisory) Key(name string) advisoryKeys { return keysOf(name) }

// int8Bytes is a key in PostgreSQL's binary format.
func int8Bytes(key int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(key)) }
