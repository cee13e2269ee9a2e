package driver

import (
	"errors"
	"fmt"
)

// The kinds of failure that a client acts upon. An engine turns its vendor's errors into these in
// one function, by code and never by message, and keeps the vendor's error beside the kind (Fail).
var (
	ErrSchema      = errors.New("dblock's tables are missing or of another version")
	ErrReadOnly    = errors.New("the database is read-only")
	ErrRetry       = errors.New("the transaction lost a race and did nothing; run it again")
	ErrUnavailable = errors.New("the database cannot be reached or cannot serve now")
	ErrBusy        = errors.New("another transaction has locked the row")
	ErrNotHeld     = errors.New("not held by this session and token")
	ErrCapacity    = errors.New("the name is shared with another number of units")
	ErrFuture      = errors.New("the slot is too far ahead of the database's clock")
	ErrUnsupported = errors.New("not supported")
	ErrConfig      = errors.New("the engine cannot work as it was set up")
	ErrTxDone      = errors.New("the transaction has ended: it was committed or rolled back, or its context ended")

	// ErrCannotListen is ErrUnsupported of Queue.Listen where no setting would help: the
	// application's driver has nothing to listen with.
	ErrCannotListen = Fail(ErrUnsupported, errors.New("the database driver offers no LISTEN"))

	// ErrReplaced is joined to a kind. The session's locks do not count any more: other sessions
	// may have them already.
	ErrReplaced = errors.New("the database is another than the one that was opened")
)

// Fail joins a kind and its cause: errors.Is finds both.
func Fail(kind, cause error) error { return fmt.Errorf("%w: %w", kind, cause) }
