// Package named keeps locks in the named locks (GET_LOCK) of MySQL and MariaDB. mysql.Named says
// what users may expect of them. Package connlock decides what happens on which connection; this
// package is its Server.
//
// # Keys
//
// A name is two named locks: the lock itself and the queue for it. The first waiter has the queue,
// and keeps it until its client has the lock.
//
// # Connections
//
// All connections come out of the application's pool and never go back to it. The pinned connection
// has all locks of a client. Its operations are columns of one statement. database/sql has no read
// that can be interrupted, so the end of the connection is found by looking at its socket.
//
// A waiter's connection joins the queue and waits for the lock in one statement, so that a
// connection whose client has gone does not stay the first of a queue. The server ends the
// connection of a stopped process with wait_timeout. A wait that is called off is ended with KILL
// QUERY, which finds the waiter by a tag (package mysqlserver), and the connection survives.
package named

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

const (
	plainPrefix  = "dblock/"
	hashedPrefix = "dblock="
	queueSuffix  = "+"
	// maxPlain leaves room for the prefix and the suffix in the 64 characters that MySQL allows.
	maxPlain = 64 - len(plainPrefix) - len(queueSuffix)
)

// Key is mysql.NamedKey.
func Key(name string) string {
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

// New makes the named locks of the server that a pool leads to.
func New(db *sql.DB) driver.Native[*sql.Tx] { return native{db} }

// native is a driver.Native.
type native struct{ db *sql.DB }

func (n native) Validate() error {
	if n.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	if n := n.db.Stats().MaxOpenConnections; n == 1 || n == 2 {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("the pool allows %d connections; the locks need one of their own, a wait another, and work a third: SetMaxOpenConns(3) or more", n))
	}
	return nil
}

func (n native) Open(_ string, log *slog.Logger, ttl time.Duration) driver.Keeper[*sql.Tx] {
	k := keeper{connlock.New(&server{db: n.db}, log, ttl)}
	if most := n.db.Stats().MaxOpenConnections; most > 0 {
		k.Limit(max(1, (most-1)/2)) // more waiters would take the connections that holders need for their work
	}
	return k
}

// keeper refuses what named locks do not have.
type keeper struct {
	*connlock.Keeper[string]
}

var (
	errNotShared = errors.New("named locks are exclusive")
	errNotInTx   = errors.New("a named lock does not end with a transaction: use Lock around it, or mysql.New, whose locks in tables have LockTx")
)

func (k keeper) Acquire(ctx context.Context, name string, shared, wait bool) (driver.Possession, bool, error) {
	if shared {
		return nil, false, driver.Fail(driver.ErrUnsupported, errNotShared)
	}
	return k.Keeper.Acquire(ctx, name, false, wait)
}

func (k keeper) LockTx(context.Context, *sql.Tx, string, bool, bool) (bool, error) {
	return false, driver.Fail(driver.ErrUnsupported, errNotInTx)
}

// server is a keeper's connlock.Server.
type server struct {
	db  *sql.DB
	pin atomic.Pointer[pin] // the open one; nil: none
}

func (s *server) Key(name string) string { return Key(name) }
