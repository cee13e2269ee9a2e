package client

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// The kinds of failure that the client itself finds. Package dblock documents them.
var (
	ErrNotAcquired   = contract.ErrNotAcquired
	ErrLost          = contract.ErrLost
	ErrDeadlock      = contract.ErrDeadlock
	ErrClosed        = contract.ErrClosed
	ErrInvalidOption = contract.ErrInvalidOption

	errNilContext = contract.ErrNilContext
	errUnlocked   = contract.ErrUnlocked
)

// The reasons to acquire once more.
var (
	errSessionOver = errors.New("the session ended while waiting")
	errAgain       = errors.New("the name's row is gone, or it has no holder any more")
	errPlaceGone   = errors.New("the place in the queue is gone")
)

// The reasons for a loss that a session does not give.
var (
	errLeaseOver     = contract.ErrLeaseOver
	errGrantedAgain  = errors.New("the database granted the name again")
	errDisowned      = errors.New("the database says that another has it, or nobody")
	errLostMeanwhile = errors.New("one of the locks was lost while the client waited for others")
)

// errReleasedTx: nothing but Guard tells whether the transaction of UnlockTx was rolled back.
var errReleasedTx = fmt.Errorf("%w: UnlockTx was called: after a rollback, call Guard first", driver.ErrNotHeld)

// errExhausted: the application's pool gave no connection for a whole TTL.
var errExhausted = errors.New("the pool gave no connection")

// lost is ErrLost with its reason.
func lost(reason error) error { return contract.Lost(reason) }

// isOutage reports whether an error says that the database cannot serve now. A server that accepts
// no writes is one, to a client that has begun: a failover has left it there.
func isOutage(err error, begun bool) bool {
	return errors.Is(err, driver.ErrUnavailable) || begun && errors.Is(err, driver.ErrReadOnly)
}

// transient reports whether it may help to run a statement of the client's own again.
func transient(err error, begun bool) bool {
	return errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrBusy) || isOutage(err, begun)
}

// isRefusal reports whether a statement of several requests was refused, and may do without one of
// them: nothing was done, and it is neither an outage nor a race that was lost.
func isRefusal(err error) bool { return err != nil && !driver.InDoubt(err) && !transient(err, true) }

// broken reports whether an error is of a connection that broke, or that its server has ended.
func broken(err error) bool {
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, sqldriver.ErrBadConn, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, is) {
			return true
		}
	}
	state := transaction.SQLState(err)
	return state == "57P01" || state == "57P02" // shutdown, crash
}

// residue is what an attempt that failed may have left in the database.
type residue int

const (
	nothing   residue = iota
	something         // a place in the queue, or by now the lock
	unsure            // the same, and its statement may still be on its way
)

// residueOf judges by the error of a statement that might have taken the lock or a place in the
// queue.
func residueOf(err error) residue {
	if errors.Is(err, ErrNotAcquired) || !driver.InDoubt(err) {
		return nothing
	}
	return unsure
}

// ended is an error that came of a context's end: it is both.
func ended(ctx context.Context, err error) error { return driver.Join(context.Cause(ctx), err) }

// worded is an error that says what another one means here.
type worded struct {
	text string
	error
}

func (w worded) Error() string { return w.text }
func (w worded) Unwrap() error { return w.error }
