// Package transaction runs statements inside the caller's transaction, with any driver and on any
// engine. It imports no driver, since an application on MySQL would get pgx into its build. So it
// recognises a pgx.Tx by its methods, and vendors' errors by their codes.
//
// It never ends the caller's transaction. It never leaves the transaction aborted where the engine
// can undo a part of it. It never retries a step that the caller must repeat with the whole
// transaction.
//
// # Waiting
//
// When a context ends in the middle of a statement, the driver breaks the connection, and the
// transaction with it. So the statements get a context that outlives the caller's by Grace. They
// wait for rows in turns, and the caller's context is checked between two turns. When it has ended,
// the transaction is as it was before and can go on.
//
//   - PostgreSQL: lock_timeout, behind a savepoint. A turn is longer than deadlock_timeout: with
//     shorter turns, two transactions that wait for each other would never wait long enough for the
//     server to find the deadlock.
//   - MySQL, MariaDB: a limit that belongs to the statement alone (Turn). The server finds
//     deadlocks at once. MySQL has none for an INSERT: see Rows.
//   - SQLite: there are no turns. One try waits as long as the caller's own busy_timeout says, as
//     any other statement of the caller does.
//
// The total wait is no longer than the caller's own setting allows.
//
// # A transaction that has ended
//
// A server ends a transaction by itself after some errors (a deadlock of MySQL and MariaDB), and
// after a COMMIT, a ROLLBACK or a statement with an implicit commit that was sent as text. The
// driver does not notice: what is sent through it then commits statement by statement, and locks
// nothing. So every step first proves that its transaction is open.
//
//   - PostgreSQL: the savepoint of the step, which is refused outside of a transaction (25P01).
//   - MySQL, MariaDB, TiDB: OpenMySQL.
//   - SQLite: OpenSQLite.
//
// # Nothing is borrowed
//
// The connection may go back to its pool at any moment: database/sql takes it back when the context
// ends with which the transaction was begun. So no step changes a setting of the connection, takes
// a named lock, or lets the server end a statement of it: the restoring statement could come too
// late. PostgreSQL's settings are local to the transaction and end with it.
package transaction

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/driver"
)

// ErrInvalid is the error for wrong input, found without I/O.
var ErrInvalid = errors.New("invalid argument")

// Grace is the time for which a statement in the caller's transaction may go on after the caller's
// context has ended.
const Grace = 5 * time.Second

// Queries runs statements.
type Queries interface {
	Exec(ctx context.Context, text string, args ...any) error
	// Row scans the only row. It returns false if there is none.
	Row(ctx context.Context, text string, args []any, into ...any) (bool, error)
}

// Work is a step with an implementation for each engine. It may run more than once. After an error
// its writes are undone where the engine can do that.
type Work struct {
	Table string // the table that the work needs
	Set   string // the migrations that have the table, as a Go expression
	Postgres,
	MySQL,
	SQLite func(ctx context.Context, q Queries) error
}

// Tx is the caller's transaction.
type Tx struct {
	queries Queries
	engine  *engine // nil: not known yet, since database/sql is used with every engine
}

// engine is the part that differs between engines.
type engine struct {
	work func(Work) func(ctx context.Context, q Queries) error
	// run runs work until ctx ends. The transaction outlives ctx. quiet is the context for
	// statements.
	run func(ctx, quiet context.Context, q Queries, work func(context.Context, Queries) error) error
	// missing reports whether a missing table caused an error.
	missing func(ctx context.Context, q Queries, table string, err error) bool
	// place is a statement that names the place in which a connection looks for tables.
	place string
}

// Of wraps a pgx.Tx, a *sql.Tx, or a type with the methods of the latter. It does no I/O.
func Of(tx any) (Tx, error) {
	if isNil(tx) {
		return Tx{}, fmt.Errorf("%w: the transaction is nil", ErrInvalid)
	}
	if t, ok := tx.(sqlTx); ok {
		return Tx{queries: sqlQueries{t}}, nil
	}
	if q, ok := ofPgx(tx); ok {
		return Tx{queries: q, engine: &postgres}, nil
	}
	return Tx{}, fmt.Errorf("%w: a %T is neither a pgx.Tx nor a *sql.Tx; a pool or a connection has no transaction "+
		"to be part of", ErrInvalid, tx)
}

// Name returns an error unless name is valid on every engine.
func Name(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(name) > 255:
		return fmt.Errorf("%w: the %s has %d bytes, at most 255 are allowed", ErrInvalid, what, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: the %s contains NUL", ErrInvalid, what)
	}
	return nil
}

// Do does the work, and waits for other transactions until ctx ends. After an error of the work
// itself, or of the context, the transaction can go on. ErrRetry where it must be run again,
// ErrReadOnly where it accepts no writes, ErrConfig where rows of it are open, ErrTxDone where the
// server has ended it.
func (t Tx) Do(ctx context.Context, w Work) error {
	err := t.do(ctx, w)
	if over := Over(err); over != nil {
		return over
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // the cause of the wait may look like a lost race
		return err
	case Retryable(err):
		return driver.Fail(driver.ErrRetry, err)
	case readOnly(err):
		return driver.Fail(driver.ErrReadOnly,
			fmt.Errorf("begin the transaction without READ ONLY, on the primary: %w", err))
	}
	if open := RowsOpen(err); open != nil {
		return open
	}
	return err
}

func (t Tx) do(ctx context.Context, w Work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	quiet, cancel := Lenient(ctx)
	defer cancel()
	e := t.engine
	if e == nil {
		var err error
		if e, err = detect(quiet, t.queries); err != nil {
			return Ended(ctx, quiet, err)
		}
	}
	err := Ended(ctx, quiet, e.run(ctx, quiet, t.queries, e.work(w)))
	if err != nil && e.missing(quiet, t.queries, w.Table, err) {
		var place string
		if there, second := t.queries.Row(quiet, e.place, nil, &place); second != nil || !there {
			place = "this database"
		}
		return driver.Fail(driver.ErrSchema,
			fmt.Errorf("%s is not in %s; run migrate.Up(ctx, db, engine, %s): %w", w.Table, place, w.Set, err))
	}
	return err
}

// detect asks the server for its version. SQLite has no version(), and such an error does no harm
// to its transaction. PostgreSQL has the function: an error would abort its transaction.
func detect(ctx context.Context, q Queries) (*engine, error) {
	var version string
	_, err := q.Row(ctx, "SELECT version()", nil, &version)
	switch {
	case err != nil:
		if _, second := q.Row(ctx, "SELECT sqlite_version()", nil, &version); second != nil {
			return nil, driver.Join(err, second)
		}
		return &sqlite, nil
	case strings.HasPrefix(version, "PostgreSQL "):
		return &postgres, nil
	case version != "" && version[0] >= '0' && version[0] <= '9':
		return &mysql, nil
	}
	return nil, fmt.Errorf("%w: the transaction is on %q, which is none of PostgreSQL, MySQL, MariaDB and SQLite",
		driver.ErrUnsupported, version)
}

// Ended converts the errors which say that the caller's transaction has ended to ErrTxDone.
// database/sql ends a transaction with the context with which it was begun, closes the rows of a
// statement, and reports that context's error. quiet is the statement's own context. If ctx has
// ended, too, the error has that cause.
func Ended(ctx, quiet context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if quiet.Err() != nil || ctx.Err() != nil {
			return err
		}
	case !strings.Contains(err.Error(), "sql: Rows are closed"): // database/sql has no value for this error
		return err
	}
	return driver.Fail(driver.ErrTxDone, driver.Join(ctx.Err(), err))
}

// Lenient returns a context for statements in the caller's transaction. It ends Grace after ctx.
func Lenient(ctx context.Context) (context.Context, context.CancelFunc) {
	quiet, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(Grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-quiet.Done():
		}
	})
	return quiet, func() { stop(); cancel() }
}

// turns repeats try until its result is no turn that ran out. patience returns the limit that the
// caller's session sets for all turns together; 0: none. patience is called only after a turn ran
// out.
func turns(
	ctx context.Context, try func() error, ended func(error) bool, patience func() (time.Duration, error),
) error {
	start := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		if err == nil || !ended(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("another transaction is in the way: %w: %w", ctx.Err(), err)
		}
		if limit, second := patience(); second != nil || limit > 0 && time.Since(start) >= limit {
			return driver.Join(err, second)
		}
	}
}
