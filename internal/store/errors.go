package store

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// errExhausted is an outage of the application's pool: it gave no connection for a whole TTL.
var errExhausted = errors.New("the pool gave no connection")

// again is a reason of the client's own to send a request again.
type again struct{ text string }

func (a again) Error() string { return a.text }
func (a again) Unwrap() error { return driver.ErrRetry }

// The reasons of a client to retry a request.
var (
	ErrSessionOver error = again{"the session ended while waiting"}
	ErrAgain       error = again{"the lock in front was lost, or its queue changed: the request is sent again"}
	ErrPlaceGone   error = again{"the place in the queue is gone"}
)

// isOutage reports whether an error says that the database cannot serve now. hadSession: the client
// has had a session, so that a failover must have left it at a server that accepts no writes.
func isOutage(err error, hadSession bool) bool {
	return errors.Is(err, driver.ErrUnavailable) || hadSession && errors.Is(err, driver.ErrReadOnly)
}

// isTransient reports whether a retry of one of the client's own statements may succeed.
func isTransient(err error, hadSession bool) bool {
	return isRace(err) || isOutage(err, hadSession)
}

// isRace reports whether a statement lost a race or met a locked row.
func isRace(err error) bool { return errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrBusy) }

// Outage reports whether an error says that the database cannot serve now.
func (s *Store) Outage(err error) bool { return isOutage(err, s.HadSession()) }

// Transient reports whether a retry of one of the client's own statements may succeed.
func (s *Store) Transient(err error) bool { return isTransient(err, s.HadSession()) }

// Refusal reports whether a statement of several requests was refused, and may be accepted without
// one of them: nothing was done, and the error is neither an outage nor a lost race.
func Refusal(err error) bool {
	return err != nil && !driver.InDoubt(err) && !isTransient(err, true)
}

// broken reports whether an error is of a connection that broke, or that its server has closed.
func broken(err error) bool {
	for _, is := range []error{
		io.EOF, io.ErrUnexpectedEOF, sqldriver.ErrBadConn, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	state := transaction.SQLState(err)
	return state == "57P01" || state == "57P02" // shutdown, crash
}

// Residue is the part of a failed request that may be in the database.
type Residue int

// The residues.
const (
	Nothing   Residue = iota
	Something         // a place in the queue, or by now the lock
	Unsure            // Something, and the statement may still be in flight
	Settled           // Nothing, or package ledger undoes it
)

// ResidueOf returns the residue of a statement that could take the lock or a place in the queue.
func ResidueOf(err error) Residue {
	if errors.Is(err, contract.ErrNotAcquired) || !driver.InDoubt(err) {
		return Nothing
	}
	return Unsure
}

// Ended joins an error with the cause of the context's end that led to it.
func Ended(ctx context.Context, err error) error { return driver.Join(context.Cause(ctx), err) }
