// Package mysqlserver has the knowledge of MySQL and MariaDB that both kinds of locks share, those
// in tables and the server's own: the meaning of its errors, the variables that matter, how a
// connection of the application's pool is examined and discarded, and how a statement on another
// connection is ended.
package mysqlserver

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"time"
)

// CloseTimeout bounds the clean-up after the end of a context.
const CloseTimeout = time.Second

// Discard closes a connection that was taken out of a pool, so that the pool does not lend it. It
// waits for the network for at most CloseTimeout. The end of an unanswered transaction is awaited
// in the background.
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
