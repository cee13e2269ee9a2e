// Package advisory keeps locks in PostgreSQL's advisory locks, as postgres.Advisory documents them.
// Package sessionlock decides which connection runs each operation. This package is its Server, and
// LockTx.
//
// # Keys
//
// A name is two advisory locks: the lock itself and the queue for it. The first waiter has the
// queue, and keeps it until its client has the lock.
//
// # Connections
//
// The pinned connection has all locks of a client. The locks are the session's, so that they do not
// end with a transaction, and the connection is idle while they are held. Its operations are
// prepared statements, of which one round trip carries any number.
//
// A waiter's connection keeps the client's place in the queue inside a transaction, because on
// PostgreSQL 13 the server can end the session of a stopped process only there
// (idle_in_transaction_session_timeout). An abandoned wait is cancelled in the server, and the
// connection survives.
//
// LockTx waits on the connection of the caller's transaction. The lock is the transaction's and the
// queue the session's: a transaction's advisory lock cannot be released before the transaction
// ends. Everything is done under a savepoint, so that the transaction can continue after an error.
package advisory

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

// Client has the advisory locks of one client.
type Client struct{ *sessionlock.Client }

// New makes a client on the server that a pool leads to. It does no I/O.
func New(pool *pgxpool.Pool, config sessionlock.Config) (*Client, error) {
	k, err := open(pool, config)
	if err != nil {
		return nil, err
	}
	return &Client{sessionlock.NewClient(k, true)}, nil
}

// open makes the keeper of a client.
func open(pool *pgxpool.Pool, config sessionlock.Config) (*sessionlock.Keeper[keys], error) {
	if pool == nil {
		return nil, pgserver.ErrNilPool
	}
	return sessionlock.New(server{pool, config.App}, config.Log, config.TTL), nil
}

// server is the sessionlock.Server of a client.
type server struct {
	pool *pgxpool.Pool
	app  string // of the client
}

// keys are the two keys of a name.
type keys struct{ lock, queue int64 }

func (server) Key(name string) keys { return keysOf(name) }

func keysOf(name string) keys { return keys{Key(name), QueueKey(name)} }

// Key is postgres.AdvisoryKey.
func Key(name string) int64 { return hash("dblock:" + name) }

// QueueKey is the key that a name's first waiter holds.
func QueueKey(name string) int64 { return hash("dblock:queue:" + name) }

func hash(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
