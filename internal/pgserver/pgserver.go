// Package pgserver has the knowledge of PostgreSQL that both kinds of locks share, those in tables
// and the server's own: the meaning of its errors, how a connection beside the application's pool
// is opened and closed, and how long that may take.
package pgserver

import (
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Begin begins a transaction each of whose statements sees all earlier commits, whatever the
// application's default.
const Begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

const (
	// CleanupTimeout bounds the clean-up after the end of a context.
	CleanupTimeout = time.Second
	// CancelInterval is the pause between two requests to cancel a statement: a request before the
	// statement is lost.
	CancelInterval = 50 * time.Millisecond
)

// ErrNilPool is the error of an engine that was made without a pool.
var ErrNilPool = driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
