package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/protocol"
)

// The kinds of failure on which a client acts. An engine turns its vendor's errors into these in
// one function, by code and never by message, and keeps the vendor's error beside the kind (Fail).
var (
	ErrSchema      = errors.New("dblock's tables are missing or of another version")
	ErrReadOnly    = errors.New("the database is read-only")
	ErrRetry       = protocol.ErrRetry
	ErrUnavailable = errors.New("the database cannot be reached or cannot serve now")
	ErrBusy        = protocol.ErrBusy
	ErrNotHeld     = protocol.ErrNotHeld
	ErrCapacity    = protocol.ErrCapacity
	ErrGuarded     = protocol.ErrGuarded // joined to ErrBusy
	ErrUnsupported = errors.New("not supported")
	ErrConfig      = errors.New("the engine cannot work as it was set up")
	ErrDenied      = errors.New("the server refuses the user or the password")
	ErrTxDone      = errors.New("the transaction has ended: it was committed or rolled back, or its context ended")

	// ErrCannotListen is ErrUnsupported of Upkeep.Listen where no setting would help: the
	// application's driver cannot listen.
	ErrCannotListen = Fail(ErrUnsupported, errors.New("the database driver offers no LISTEN"))

	// ErrDeaf is ErrUnsupported of Upkeep.Listen where the application gave an address to listen
	// at, and no notification arrives there.
	ErrDeaf = Fail(ErrUnsupported, errors.New("nothing is heard at the address given to Listen: it is a pooler's, "+
		"or of another database"))

	// ErrInDoubt is joined to a kind if the transaction may have been committed nevertheless.
	ErrInDoubt = errors.New("whether the transaction was committed is not known")

	// ErrRefused is joined to the error of a server that came in place of an effect: the statement,
	// and its transaction, did nothing. Refused joins it.
	ErrRefused = errors.New("the database refused the statement")

	// ErrRolledBack is joined to ErrRetry if the error has ended the whole transaction: whatever is
	// sent through it from then on commits by itself.
	ErrRolledBack = errors.New("the server has rolled the transaction back")

	// ErrReplaced is joined to a kind. The session's locks do not count any more: other sessions
	// may have them already.
	ErrReplaced = errors.New("the database is another than the one that was opened")
)

// Locked is the cause of ErrBusy of an engine whose transactions lock more than the name's row.
type Locked struct {
	Commit string // changes with each commit; "": it is not known
	Cause  error
}

func (l *Locked) Error() string { return l.Cause.Error() }

// Unwrap returns the cause.
func (l *Locked) Unwrap() error { return l.Cause }

// Fail joins a kind and its cause: errors.Is finds both. A cause that matches the kind is returned
// unchanged. The text has one line: pgx gives each address that it tried a line of its own.
func Fail(kind, cause error) error {
	if errors.Is(cause, kind) {
		return cause
	}
	return &joined{kind.Error() + ": " + OneLine(cause.Error()), []error{kind, cause}}
}

// Mark makes an error match a kind. Its text stays the same.
func Mark(kind, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return &joined{err.Error(), []error{err, kind}}
}

// Refused marks the error of a server as a refusal.
func Refused(err error) error { return Mark(ErrRefused, err) }

// effectless are the kinds of failure after which the call has done nothing.
var effectless = []error{
	ErrRefused, ErrSchema, ErrReadOnly, ErrRetry, ErrBusy, ErrNotHeld, ErrCapacity, ErrUnsupported, ErrConfig,
	ErrDenied,
}

// InDoubt reports whether a failed call may have had its effect, or may have it later. That is so
// unless the error says otherwise. The outcome is unknown after a broken connection, after the end
// of a context while a statement was in flight, and after an error that no engine knows.
func InDoubt(err error) bool {
	if err == nil || errors.Is(err, ErrInDoubt) {
		return err != nil
	}
	return !slices.ContainsFunc(effectless, func(kind error) bool { return errors.Is(err, kind) })
}

// errPoolClosed is the error of every statement after the application has closed its pool.
var errPoolClosed = Fail(ErrConfig, errors.New("the application has closed the pool: close the client first"))

// PoolClosed returns ErrConfig if an error says that the pool was closed, and nil otherwise.
// Neither database/sql nor pgxpool has a value for that error.
func PoolClosed(err error) error {
	for at := err; at != nil; at = errors.Unwrap(at) {
		if text := at.Error(); text == "sql: database is closed" || text == "closed pool" {
			return errPoolClosed
		}
	}
	return nil
}

// Triggered returns ErrConfig for a trigger, or a rule of PostgreSQL, on one of dblock's tables.
// Engines pass over a trigger with a name that begins with dblock_: it counts as dblock's own.
func Triggered(kind, name, table string) error {
	return Fail(ErrConfig, fmt.Errorf("%s %q on table %s: with it a statement of dblock's may do nothing, wait for "+
		"itself, or return no token: drop it, and leave dblock's tables out where it was made", kind, name, table))
}

// mostTexts bounds the text of joined errors, of which a client with 10,000 locks may have as many.
const mostTexts = 10

// Join is errors.Join with a text of one line, without repetitions, of the first errors.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	var texts []string
	for _, err := range errs[:min(len(errs), mostTexts)] {
		texts = append(texts, err.Error())
	}
	if more := len(errs) - mostTexts; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return &joined{OneLine(texts...), errs}
}

// OneLine joins texts to one line, without repetitions.
func OneLine(texts ...string) (line string) {
	for part := range strings.Lines(strings.Join(texts, "\n")) {
		switch part = strings.TrimSpace(part); {
		case strings.Contains(line, part):
		case line == "":
			line = part
		case strings.HasSuffix(line, ":"):
			line += " " + part
		default:
			line += "; " + part
		}
	}
	return line
}

// joined is an error that wraps several others.
type joined struct {
	text string
	errs []error
}

func (j *joined) Error() string   { return j.text }
func (j *joined) Unwrap() []error { return j.errs }
