// Package mysqlserver is what both kinds of locks on MySQL and MariaDB, those in tables and the
// server's own, know of the server: what its errors mean, which of its variables matter, how a
// connection out of the application's pool is examined and discarded, and how a statement on
// another connection is ended.
package mysqlserver

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"time"
)

// CloseTimeout bounds the clean-up after the end of a context.
const CloseTimeout = time.Second

// Discard closes a connection that was taken out of a pool, so that the pool does not lend it out.
// It does not wait long for the network: all that it sends is a goodbye, and the end of a
// transaction that was not answered is waited for in the background.
func Discard(conn *sql.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		_ = conn.Close()
	}()
	select {
	case <-done:
	case <-time.After(CloseTimeout):
	}
}
