// Package named keeps locks in the named locks (GET_LOCK) of MySQL and MariaDB, as mysql.Named
// documents them. Package sessionlock decides which connection runs each operation. This package is
// its Server.
//
// # Keys
//
// A name is two named locks: the lock itself and the queue for it. The first waiter has the queue,
// and keeps it until its client has the lock.
//
// # Connections
//
// All connections come from the application's pool and never return to it. The pinned connection
// has all locks of a client. Its operations are columns of one statement. database/sql has no read
// that can be interrupted, so the end of the connection is found by looking at its socket.
//
// A waiter's connection joins the queue and waits for the lock in one statement, so that a
// connection whose client has gone does not stay the first of a queue. The server ends the
// connection of a stopped process with wait_timeout. An abandoned wait is ended with KILL QUERY,
// which finds the waiter by a tag (package mysqlserver), and the connection survives.
package named

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/sessionlock"
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

// Open makes the keeper of a client, on the server that a pool leads to. It does no I/O.
func Open(db *sql.DB, config sessionlock.Config) (*sessionlock.Keeper[string], error) {
	if db == nil {
		return nil, driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	most := db.Stats().MaxOpenConnections
	if most == 1 || most == 2 {
		return nil, driver.Fail(driver.ErrConfig,
			fmt.Errorf("the pool allows %d connections; the locks need one of their own, a wait another, and work a "+
				"third: SetMaxOpenConns(3) or more", most))
	}
	k := sessionlock.New(&server{db: db}, config.Log, config.TTL)
	if most > 0 {
		// more waiters would take the connections that holders need for their work
		k.Limit(max(1, (most-1)/2))
	}
	return k, nil
}

// server is the sessionlock.Server of a client.
type server struct {
	db  *sql.DB
	pin atomic.Pointer[pin] // the open one; nil: none
}

func (s *server) Key(name string) string { return Key(name) }
