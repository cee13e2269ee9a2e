package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/connlock"
)

// Named keeps locks in the server's named locks, GET_LOCK: no tables and no migrations, exclusive,
// first come first served over all clients. There are no tokens, and a lock lives exactly as long
// as the one connection that has it: a network that drops it, a failover or a KILL lose every lock
// of the client at once, which notices within a second of the end of its connection. Shared and
// LockTx are ErrUnsupported: no named lock is shared, and none ends with a transaction; New, on
// tables, has LockTx.
//
// The pool stays the application's. A client keeps one of its connections for all locks that it
// holds, and one for each name that it waits for, up to 16 and to half of what the pool allows
// beside; beyond that it looks again and again. The pool must allow three. A wait survives the end
// of its connection and a server that is away for less than the client's TTL, and queues again, at
// the end.
//
// A process that is stopped while it waits (SIGSTOP, a paused container) holds up the others that
// wait for the name for 10 s when its turn comes: then the server ends its connection, with
// wait_timeout. A process that is stopped while it holds locks keeps them until it goes on or its
// connection ends.
//
// The end of the connection is seen by looking at its socket, four times a second, which costs the
// server nothing. Where the driver cannot look (checkConnLiveness=false, a driver wrapped around
// it, a dialer whose connections hide their socket, Windows) a statement asks twice a second
// instead. A connection that goes silent without an end (a cable, a firewall that forgets) is
// noticed by TCP keepalive alone: by the client after some two minutes; by the server, which keeps
// the locks until then, when its system says so (net.ipv4.tcp_keepalive_time on Linux: two hours).
//
// With a readTimeout in the DSN a place in a queue is given up and taken again each time that two
// thirds of it are over, so that clients are served in no strict order; it must be two seconds or
// more.
//
// Refused with the first lock, before it is taken: a Galera cluster, or a group with several
// primaries, since each node has named locks of its own; and a proxy that spreads statements over
// connections, where it shows (ErrConfig); a replica or a server that is read-only (ErrReadOnly).
// One that becomes read-only while locks are held has been demoted: they are lost with the client's
// next statement. So they are with a KILL QUERY from outside that hits one.
//
// Named locks are the whole server's, not the database's: applications that share a server exclude
// each other where they use the same names. See NamedKey.
func Named(db *sql.DB) driver.Engine[*sql.Tx] {
	return driver.Engine[*sql.Tx]{Native: named{db}}
}

const (
	plainPrefix  = "dblock/"
	hashedPrefix = "dblock="
	queueSuffix  = "+"
	// maxPlain leaves room for the prefix and the suffix in the 64 characters that MySQL allows.
	maxPlain = 64 - len(plainPrefix) - len(queueSuffix)
)

// NamedKey is what a name is to GET_LOCK, and to IS_USED_LOCK in a console, for ever: "dblock/" and
// the name where that is at most 56 bytes of a to z, 0 to 9 and . _ : / -, and otherwise "dblock="
// and the SHA-256 of the name in lower-case base32 without padding. Other letters are hashed
// because servers differ in which of them are the same: to MySQL A is a, to MariaDB it is not.
// Whoever waits first holds the key with a "+" behind it: the queue.
func NamedKey(name string) string {
	if name != "" && len(name) <= maxPlain && !strings.ContainsFunc(name, notPlain) {
		return plainPrefix + name
	}
	sum := sha256.Sum256([]byte(name))
	return hashedPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-", r)
}

func queueKey(key string) string { return key + queueSuffix }

// named is the driver.Native.
type named struct{ db *sql.DB }

func (n named) Validate() error {
	if n.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	if n := n.db.Stats().MaxOpenConnections; n == 1 || n == 2 {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("the pool allows %d connections; the locks need one of their own, whoever waits another, and work a third: SetMaxOpenConns(3) or more", n))
	}
	return nil
}

func (n named) Open(log *slog.Logger, ttl time.Duration) driver.Keeper[*sql.Tx] {
	k := namedKeeper{connlock.New(&namedServer{db: n.db}, log, ttl)}
	if most := n.db.Stats().MaxOpenConnections; most > 0 {
		k.Limit(max(1, (most-1)/2)) // or those who wait would take the connections that holders need to come to their end
	}
	return k
}

// namedKeeper refuses what named locks do not have.
type namedKeeper struct {
	*connlock.Keeper[string]
}

var (
	errNotShared = errors.New("named locks are exclusive")
	errNotInTx   = errors.New("a named lock does not end with a transaction: use Lock around it, or mysql.New, whose locks in tables have LockTx")
)

func (k namedKeeper) Acquire(ctx context.Context, name string, shared, wait bool) (driver.Possession, bool, error) {
	if shared {
		return nil, false, driver.Fail(driver.ErrUnsupported, errNotShared)
	}
	return k.Keeper.Acquire(ctx, name, false, wait)
}

func (k namedKeeper) LockTx(context.Context, *sql.Tx, string, bool, bool) (bool, error) {
	return false, driver.Fail(driver.ErrUnsupported, errNotInTx)
}

// namedServer is a keeper's connlock.Server.
type namedServer struct {
	db  *sql.DB
	pin atomic.Pointer[namedPin] // the one that is open; nil where there is none
}

func (s *namedServer) Key(name string) string { return NamedKey(name) }
