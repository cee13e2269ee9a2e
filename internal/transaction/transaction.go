// Package transaction runs statements inside a transaction of the caller's, whatever driver it is
// of and whatever engine it is on. It imports no driver: one that it named would be in everybody's
// build, pgx in that of an application on MySQL. So a pgx.Tx is known by its methods, and vendors'
// errors by their codes.
//
// It never ends the caller's transaction, never leaves it aborted where the engine can undo a part
// of it, and never retries what the caller must repeat as a whole.
//
// # Waiting
//
// A driver whose context ends in the middle of a statement breaks the connection, and the
// transaction with it. So the statements get a context that outlives the caller's for a moment, and
// wait for rows in turns, between which the caller's context is looked at. After its end the
// transaction is as it was before, and goes on.
//
//   - PostgreSQL: lock_timeout, behind a savepoint. A turn is longer than deadlock_timeout: of two
//     transactions that wait for each other in shorter ones, neither would ever wait long enough to
//     be told.
//   - MySQL, MariaDB: innodb_lock_wait_timeout, in whole seconds; deadlocks are found at once. Not
//     where innodb_rollback_on_timeout is on, which would take the whole transaction back: there
//     the caller's own patience holds.
//   - SQLite: busy_timeout = 0, and asked again after a pause; its own busy handler knows of no
//     context.
//
// The caller's own setting of each is put back, and the time that it allows is all that is waited.
package transaction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/driver"
)

// ErrInvalid is wrong input, found without I/O.
var ErrInvalid = errors.New("invalid argument")

// Grace is how much longer than the caller's context a statement in the caller's transaction may
// take. A driver that sees its context end breaks the connection, and the transaction with it.
const Grace = 5 * time.Second

// Queries runs statements.
type Queries interface {
	Exec(ctx context.Context, text string, args ...any) error
	// Row scans the only row that there is; false: there is none.
	Row(ctx context.Context, text string, args []any, into ...any) (bool, error)
}

// Work is something to be done, in the words of each engine. It may be run more than once, and
// every error of it is undone where the engine can.
type Work struct {
	Table string // that it needs
	Set   string // of migrations that has the table, as Go names it
	Postgres,
	MySQL,
	SQLite func(ctx context.Context, q Queries) error
}

// Tx is a transaction of the caller's.
type Tx struct {
	queries Queries
	engine  *engine // nil: any that database/sql can have
}

// engine is what is particular to one.
type engine struct {
	work func(Work) func(ctx context.Context, q Queries) error
	// run runs work for as long as ctx allows; the transaction outlives that. quiet is the context
	// for statements.
	run func(ctx, quiet context.Context, q Queries, work func(context.Context, Queries) error) error
	// missing tells whether an error came of a table that is not there.
	missing func(ctx context.Context, q Queries, table string, err error) bool
}

// Of takes a *sql.Tx, or what has its methods, or a pgx.Tx. It does no I/O.
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
	return Tx{}, fmt.Errorf("%w: a %T is neither a pgx.Tx nor a *sql.Tx; a pool or a connection has no transaction to be part of", ErrInvalid, tx)
}

// Name refuses what cannot be a name on every engine.
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

// Do does the work, waiting for other transactions until ctx ends. After an error of the work's
// own, or of the context, the transaction goes on.
func (t Tx) Do(ctx context.Context, w Work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	quiet, cancel := Lenient(ctx)
	defer cancel()
	e := t.engine
	if e == nil {
		var err error
		if e, err = detect(quiet, t.queries); err != nil {
			return err
		}
	}
	err := e.run(ctx, quiet, t.queries, e.work(w))
	if err != nil && e.missing(quiet, t.queries, w.Table, err) {
		return driver.Fail(driver.ErrSchema, fmt.Errorf("%s is not there; run migrate.Up(ctx, db, engine, %s) on this database: %w", w.Table, w.Set, err))
	}
	return err
}

// detect asks the server what it is. SQLite has no such function, and an error of that kind does
// its transaction no harm; PostgreSQL is asked for nothing that it does not have, since that would
// abort one.
func detect(ctx context.Context, q Queries) (*engine, error) {
	var version string
	_, err := q.Row(ctx, "SELECT version()", nil, &version)
	switch {
	case err != nil:
		if _, second := q.Row(ctx, "SELECT sqlite_version()", nil, &version); second != nil {
			return nil, err
		}
		return &sqlite, nil
	case strings.HasPrefix(version, "PostgreSQL "):
		return &postgres, nil
	case version != "" && version[0] >= '0' && version[0] <= '9':
		return &mysql, nil
	}
	return nil, fmt.Errorf("%w: the transaction is on %q, which is none of PostgreSQL, MySQL, MariaDB and SQLite", driver.ErrUnsupported, version)
}

// Lenient is a context for statements in the caller's transaction: it ends later than ctx, by
// Grace.
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

// turns runs try until it does anything but end its turn of waiting. patience is what the caller
// allows for all turns together, asked for only when one has ended; 0: for ever.
func turns(ctx context.Context, try func() error, ended func(error) bool, patience func() (time.Duration, error)) error {
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
			return errors.Join(err, second)
		}
	}
}
