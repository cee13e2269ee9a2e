package dblock

import (
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// The errors of this package, for errors.Is. Returned errors name the lock and keep the cause: a
// Lock that its context ended is both ErrNotAcquired and context.Canceled.
var (
	// ErrNotAcquired: another holds the lock or waits for it, or an application's open transaction
	// has locked its row, and TryLock does not wait, or the context of Lock ended first. The error
	// of a Client is a *NotAcquiredError, which names the holder. If the context ended before a
	// holder or a queue was seen, the error is ErrUnavailable instead. If the context had ended
	// before the call, the error is the context's alone: nothing was tried.
	ErrNotAcquired = contract.ErrNotAcquired

	// ErrLost: the lock ended although it was not unlocked. The client could not reach the database
	// within the TTL, the process was suspended for longer than that, a fixed lease expired, the
	// same owner entered the lock elsewhere, or Break took it: the text says who did, and why,
	// where that can be read. Work under the lock may have overlapped with the next holder's unless
	// the token was checked.
	ErrLost = contract.ErrLost

	// ErrStalled: the lock had the option Progress, and its holder did not call Lock.Progress in
	// time. It is ErrLost, too.
	ErrStalled = contract.ErrStalled

	// ErrNotHeld: the caller has given the lock up, by Unlock, UnlockTx or Detach. It is the cause
	// with which Lock.Context ends then, and the error of a later Guard, UnlockTx, Downgrade,
	// TryUpgrade, Extend or Detach. Unlike ErrLost it is the caller's own doing: call Guard before
	// Unlock. Ask returns it for a name without a holder, and Resume for one without that holder.
	ErrNotHeld = driver.ErrNotHeld

	// ErrDeadlock: the caller waited for a holder that, perhaps through others, waited for the
	// caller, and the caller began to wait last. The error is a *DeadlockError, which names all of
	// them. The others go on waiting: unlock the locks that they wait for. Lock returns it at once
	// if an owner would wait for its own share or permits.
	ErrDeadlock = contract.ErrDeadlock

	// ErrCapacity: the name is in use with Shared, or readers wait for it, and Permits was
	// requested, or vice versa. See Permits.
	ErrCapacity = driver.ErrCapacity

	// ErrClosed: the client was closed. Close releases its locks.
	ErrClosed = contract.ErrClosed

	// ErrSchema: dblock's tables are missing, or of a version that this build cannot work with. The
	// error names the database and the schema in which they were looked for, the version and the
	// command to run.
	ErrSchema = driver.ErrSchema

	// ErrReadOnly: the database accepts no writes: a standby, or a read-only session or transaction
	// default. Connect to the primary. For a client that has had a session before it is an outage,
	// as ErrUnavailable: a failover may be in progress. Also a transaction, given to Guard,
	// UnlockTx or LockTx, that is READ ONLY: the lock stays as it was.
	ErrReadOnly = driver.ErrReadOnly

	// ErrUnavailable: the database could not be reached or could not serve: connection refused or
	// broken, shutting down, too many connections, disk full, a statement over the application's
	// own time limit, a pool without a free connection (the error names those that dblock keeps),
	// an answer that came too late for a short Lease. Lock, TryLock, Unlock and the calls of
	// package jobs retry for up to one TTL before they return it, but not after their context has
	// ended: the error then has the context's error too. Lock and TryLock of a client that has
	// never reached its database return it at once. No call waits longer than a TTL for an answer,
	// or for a connection of the pool, even if its context allows that.
	ErrUnavailable = driver.ErrUnavailable

	// ErrUnsupported: the engine, or the lock in its present mode, does not allow the call. The
	// error says why.
	ErrUnsupported = driver.ErrUnsupported

	// ErrConfig: the client or its pool cannot work as set up. New finds it without I/O where that
	// is possible. Also a database user that lacks a right, or from whom row level security hides
	// the tables: the error names the object. Also a transaction, given to Guard, UnlockTx or
	// LockTx, of another database that has dblock's tables, or with rows that are still open: the
	// lock stays as it was.
	ErrConfig = driver.ErrConfig

	// ErrBusy: an open transaction of the application's is in the way. UnlockTx returns it if the
	// lock guards another transaction: end that first. Guard returns it if another transaction has
	// locked the lock's row. TryLock returns it with ErrNotAcquired. Nothing was done.
	ErrBusy = driver.ErrBusy

	// ErrRetry: the transaction given to LockTx, TryLockTx, Guard, UnlockTx, fence.Check,
	// optimistic.Read or optimistic.Bump lost a race: a serialization failure, a deadlock of the
	// database's, a lock wait timeout, or a snapshot that is older than the lock. Roll the
	// transaction back and run it again from its beginning, as optimistic.Retry does. The locks
	// given to Guard and UnlockTx are held as before. COMMIT reports a lost race by the driver's
	// own error.
	ErrRetry = driver.ErrRetry

	// ErrTxDone: the transaction given to Guard, UnlockTx, LockTx, TryLockTx, fence.Check,
	// optimistic.Read or optimistic.Bump had ended before, or an error has aborted it (PostgreSQL).
	// Also if only the server has ended it: after a deadlock (MySQL, MariaDB) that was not heeded,
	// a COMMIT or ROLLBACK sent as text, or a statement with an implicit commit. The error matches
	// the driver's own too (sql.ErrTxDone, pgx.ErrTxClosed). Nothing was done.
	ErrTxDone = driver.ErrTxDone

	// ErrInvalidName: a name that is empty, longer than 255 bytes, not UTF-8, or contains NUL.
	ErrInvalidName = contract.ErrInvalidName

	// ErrInvalidOption: an option out of its range, or a nil context. The error names the allowed
	// range.
	ErrInvalidOption = contract.ErrInvalidOption
)

// LockError names the operation that failed and the lock. Errors of Lock, TryLock and Unlock are of
// this type.
type LockError struct {
	Op   string // "lock", "trylock", "unlock", …
	Name string // or a prefix of names; "" if the operation is of no lock in particular
	Err  error
}

// Error names the operation, the lock and the cause.
func (e *LockError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("dblock: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("dblock: %s %q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *LockError) Unwrap() error { return e.Err }

// fail returns a LockError of an error, and nil of nil.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &LockError{op, name, err}
}

// NotAcquiredError names the holder of the lock at the last look. It matches ErrNotAcquired, and
// its Cause, if there is one.
type NotAcquiredError struct {
	Host    string    // of the holder; "" if there was none, or it is unknown
	Thread  string    // of the holder
	Token   int64     // of the holder
	Since   time.Time // of the holder's grant, by the database's clock
	Until   time.Time // when the lease expires without another heartbeat of the holder, by this machine's clock
	Waiters int       // how many were waiting in the queue
	Own     bool      // the holder is this client: a caller that holds the lock calls Lock under its Context
	Cause   error     // matches context.Canceled or context.DeadlineExceeded for Lock; of TryLock usually nil

	over bool          // the holder's lease has expired, and no takeover has followed yet
	rest time.Duration // for which the free name is not granted
}

// Error says which process holds the lock, since when, until when, and how long the queue is.
func (e *NotAcquiredError) Error() string {
	text := "not acquired"
	if e.Cause != nil {
		text += fmt.Sprintf(": %v", e.Cause)
	}
	holder, advice := e.Host, ""
	if e.Own {
		holder = strings.TrimSuffix("this client, "+e.Host, ", ")
	}
	if e.Own && e.Cause != nil { // it has waited, and not only tried
		advice = ": to enter it again, lock it under its Context"
	}
	switch {
	case holder == "" && e.rest > 0:
		return text + fmt.Sprintf(" (free, but not granted for another %v: MinHold)", e.rest.Round(time.Millisecond))
	case holder == "":
		return text
	case e.Host == "":
		return text + " (held by " + holder + advice + ")"
	}
	end := "until " + e.Until.Format(protocol.Millisecond) + " unless renewed"
	if e.over {
		end = "whose lease has expired"
	}
	return text + fmt.Sprintf(" (held by %s thread %s since %s %s, %d waiting%s)",
		holder, e.Thread, e.Since.Format(protocol.Millisecond), end, e.Waiters, advice)
}

// Unwrap makes errors.Is find ErrNotAcquired and the cause.
func (e *NotAcquiredError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.Cause}
}

func notAcquired(state driver.State, own bool, cause error) error {
	e := &NotAcquiredError{Waiters: state.Waiters, Own: own, Cause: cause}
	if h := state.Holder; h.Session != "" {
		e.Host, e.Thread, e.Token, e.Since = h.Host, h.Thread, h.Grant.Token, h.Since
		e.Until, e.over = state.Until(h), h.Left <= 0
	} else {
		e.rest = state.Rest
	}
	return e
}

// DeadlockError has a cycle of owners that wait for each other. It matches ErrDeadlock.
type DeadlockError struct {
	Cycle []DeadlockLink // the first is the one that gave up; the last waits for the first
}

// DeadlockLink is one part of a cycle: an owner that waits for a lock of another one.
type DeadlockLink struct {
	Host, Thread         string // of the waiter
	Name                 string // that it waits for
	Units                int    // how many units of it; 0: the whole name
	HeldHost, HeldThread string // of the holder, which waits for the next
}

// Error names the whole cycle.
func (e *DeadlockError) Error() string {
	text := ErrDeadlock.Error()
	for i, l := range e.Cycle {
		what := "waits for"
		if l.Units > 0 {
			what = fmt.Sprintf("waits for %d of", l.Units)
		}
		sep := ";"
		if i == 0 {
			sep = ":"
		}
		text += fmt.Sprintf("%s %s thread %s %s %q, held by %s thread %s",
			sep, l.Host, l.Thread, what, l.Name, l.HeldHost, l.HeldThread)
	}
	return text
}

// Unwrap makes errors.Is find ErrDeadlock.
func (e *DeadlockError) Unwrap() error { return ErrDeadlock }

func deadlocked(cycle deadlock.Cycle) error {
	e := &DeadlockError{Cycle: make([]DeadlockLink, len(cycle))}
	for i, l := range cycle {
		e.Cycle[i] = DeadlockLink(l)
	}
	return e
}
