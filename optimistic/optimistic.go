// Package optimistic is optimistic locking with version rows: read a version, do the work, and bump
// the version in the transaction that writes. If another transaction bumped it in between, Bump
// returns ErrConflict, and the work is lost.
//
//	err := optimistic.Retry(ctx, func(ctx context.Context) error {
//		tx, err := db.BeginTx(ctx, nil)
//		if err != nil {
//			return err
//		}
//		defer tx.Rollback()
//		version, err := optimistic.Read(ctx, tx, "invoice/42") // before the data
//		…                                                      // read, and work
//		if err := optimistic.Bump(ctx, tx, "invoice/42", version); err != nil {
//			return err
//		}
//		…                                                      // write
//		return tx.Commit()
//	})
//
// The work itself waits for nothing and delays no other work, no process has to stay alive, nothing
// expires, and no client is needed. The version may be read in one transaction and bumped in
// another, days later: it is a number that can be sent along with a form.
//
// # Promises
//
// Of all transactions that bump from one version exactly one can commit. From its Bump to its end,
// a transaction makes others that bump the same name wait. That holds at every isolation level.
// Above READ COMMITTED a conflict may also show as ErrRetry, the engine's serialization error
// (PostgreSQL 40001, MariaDB 1020, SQLITE_BUSY_SNAPSHOT), which Retry treats as a conflict. Every
// writer of the data must bump.
//
// Read the version first and the data afterwards, or both from one snapshot: otherwise stale data
// could pass with a new version. For the same reason do not use READ UNCOMMITTED on MySQL and
// MariaDB, where the version can be visible before its data (measured: 2 of 30 updates lost). Bump
// before writing, and do both at the end: that keeps the wait of others short.
//
// # When it beats a lock
//
// Use versions where conflicts are rare, and the work can be thrown away. A lock costs two commits
// beside the work's own, and its waiters are served in order. A version costs two statements in the
// work's own transaction, and a loser has done its work for nothing. There is no order, so that
// under load one caller may lose again and again.
//
// Measured: transactions per second, with versions ÷ with locks, of n goroutines that all want one
// name, without work and with 5 ms of work between reading and writing. In brackets: tries per
// transaction.
//
//	no work          SQLite     PostgreSQL          MySQL        MariaDB
//	1            2.47 (1.0)     0.88 (1.0)     1.00 (1.0)     0.84 (1.0)
//	2           14.29 (1.0)     0.92 (1.0)     1.28 (1.1)     1.30 (1.0)
//	4           10.20 (1.0)     0.52 (1.1)     1.00 (1.3)     1.06 (1.2)
//	8            9.59 (1.0)     0.38 (1.2)     1.11 (1.3)     0.91 (1.5)
//	16           8.04 (1.1)     0.55 (1.4)     0.89 (1.8)     0.59 (2.1)
//	32           7.85 (1.2)     0.38 (2.0)     0.77 (2.8)     0.67 (2.6)
//	64           4.78 (1.4)     0.31 (2.9)     0.44 (4.6)     0.47 (4.4)
//
//	5 ms             SQLite     PostgreSQL          MySQL        MariaDB
//	1            1.11 (1.0)     0.97 (1.0)     1.03 (1.0)     1.01 (1.0)
//	2            2.48 (1.1)     0.70 (1.1)     1.02 (1.2)     1.10 (1.3)
//	4            1.62 (1.4)     0.65 (1.3)     0.77 (1.5)     0.85 (1.6)
//	8            1.41 (1.6)     0.53 (1.8)     0.71 (2.0)     0.58 (1.9)
//	16           1.31 (2.4)     0.42 (2.6)     0.54 (2.9)     0.63 (2.9)
//	32           1.02 (3.4)     0.60 (3.9)     0.64 (4.4)     0.55 (4.1)
//	64           0.91 (5.0)     0.48 (5.7)     0.56 (6.6)     0.52 (6.6)
//
// Printed by go test -run '^$' -bench Optimistic -benchtime 1x in bench/: one run, on two cores for
// clients and servers together. A single cell is rough, the trend is not. For a single goroutine
// both cost the same, within a fifth, except on SQLite, where the lock's own writes need the file's
// one write lock too. From two goroutines on PostgreSQL, and from four to sixteen on MySQL and
// MariaDB, the lock is faster, and with it each goroutine does its work once and in its turn.
//
// # Errors
//
// The transaction stays as it was before Read or Bump and can go on, except where the engine itself
// ends it: a deadlock on MySQL and MariaDB (1213). They also report one where the first Bump of a
// name is rolled back while several others wait for it. A transaction that the server has ended
// gets dblock.ErrTxDone. Waiting for another transaction ends with the context, as in package
// fence.
//
// # Tables
//
// migrate.Up(ctx, db, engine, migrate.Versions) makes dblock_versions, with a history of its own.
// One row per name stays for ever. Deleting it makes the name begin at 0 again: do that only when
// no caller with an old version is left.
package optimistic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/gen/versions/mysqldb"
	"github.com/dblock-go/dblock/gen/versions/postgresdb"
	"github.com/dblock-go/dblock/gen/versions/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// The errors of this package, for errors.Is.
var (
	// ErrConflict: the name has another version by now. The error is a *ConflictError.
	ErrConflict = errors.New("version conflict")

	// ErrInvalid: an argument is wrong. Nothing was sent to the database.
	ErrInvalid = transaction.ErrInvalid

	// ErrSchema: the table dblock_versions is missing. It is dblock.ErrSchema.
	ErrSchema = driver.ErrSchema

	// ErrRetry: the transaction lost a race: roll it back, and run it again, as Retry does. It is
	// dblock.ErrRetry.
	ErrRetry = driver.ErrRetry
)

// ConflictError has the name with another version by now.
type ConflictError struct {
	Name    string
	Version int64 // the version to be bumped from
}

// Error names the name and the version.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("dblock: bump %q: it is not at version %d any more: read it anew and repeat the work", e.Name,
		e.Version)
}

// Unwrap makes errors.Is find ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Read returns the version of a name, 0 where it was never bumped. tx is a pgx.Tx, or a *sql.Tx on
// PostgreSQL, MySQL, MariaDB or SQLite. A name is 1 to 255 bytes of UTF-8, compared byte for byte.
// It locks nothing.
func Read(ctx context.Context, tx any, name string) (version int64, err error) {
	t, err := accept(ctx, tx, name)
	if err == nil {
		read := func(text string, name any) func(context.Context, transaction.Queries) error {
			return func(ctx context.Context, q transaction.Queries) error {
				there, err := q.Row(ctx, text, []any{name}, &version)
				return proven(there, err)
			}
		}
		err = t.Do(ctx, transaction.Work{
			Table: table, Set: set,
			Postgres: read(postgresdb.Version, transaction.Hex(name)),
			MySQL:    read(mysqldb.Version, transaction.Hex(name)),
			SQLite:   read(sqlitedb.Version, name),
		})
	}
	if err != nil {
		return 0, fmt.Errorf("dblock: read the version of %q: %w", name, err)
	}
	return version, nil
}

// Bump increments the name's version, if tx commits. It returns ErrConflict unless the version is
// still the one that Read returned. It waits for transactions that have bumped the same name, until
// ctx ends. After an error Bump has written nothing in tx.
func Bump(ctx context.Context, tx any, name string, version int64) error {
	err := bump(ctx, tx, name, version)
	var conflict *ConflictError
	if err == nil || errors.As(err, &conflict) {
		return err
	}
	return fmt.Errorf("dblock: bump %q: %w", name, err)
}

// rows remembers the rows of dblock_versions that this process has inserted.
var rows transaction.Rows

func bump(ctx context.Context, tx any, name string, version int64) error {
	if version < 0 {
		return fmt.Errorf("%w: version %d: they begin at 0", ErrInvalid, version)
	}
	t, err := accept(ctx, tx, name)
	if err != nil {
		return err
	}
	conflict := &ConflictError{Name: name, Version: version}
	return t.Do(ctx, transaction.Work{
		Table: table, Set: set,
		Postgres: func(ctx context.Context, q transaction.Queries) error {
			text, args := postgresdb.Bump, []any{transaction.Hex(name), version}
			if version == 0 {
				text, args = postgresdb.Begin, args[:1]
			}
			var bumped int
			if _, err := q.Row(ctx, text, args, &bumped); err != nil || bumped == 1 {
				return err
			}
			return conflict
		},
		MySQL: func(ctx context.Context, q transaction.Queries) error {
			hex := transaction.Hex(name)
			lock := func() (now int64, there bool, err error) {
				there, err = transaction.LockInTurn(ctx, q, mysqldb.LockVersion, []any{hex}, &now)
				return now, there, err
			}
			var now, next int64
			var there bool
			var err error
			if version > 0 || rows.Known(q, name) {
				now, there, err = lock()
			}
			if version == 0 && !there && err == nil {
				began := time.Now()
				if err := q.Exec(ctx, mysqldb.Begin, hex); err != nil {
					return err
				}
				rows.Add(q, name)
				if now, there, err = lock(); err == nil && !there {
					err = transaction.CutSince(began)
				}
			}
			switch {
			case err != nil:
				return err
			case !there || now != version:
				return conflict
			}
			if err := q.Exec(ctx, mysqldb.Bump, hex); err != nil {
				return err
			}
			_, err = q.Row(ctx, mysqldb.Bumped, []any{hex}, &next)
			return proven(next == version+1, err)
		},
		SQLite: func(ctx context.Context, q transaction.Queries) error {
			text, args := sqlitedb.Bump, []any{name, version}
			if version == 0 {
				text, args = sqlitedb.Begin, args[:1]
			}
			var next int64
			if bumped, err := q.Row(ctx, text, args, &next); err != nil || bumped {
				return err
			}
			return conflict
		},
	})
}

// proven returns ErrUnproven for a statement that had no effect and no error, and err otherwise.
func proven(done bool, err error) error {
	if err == nil && !done {
		err = transaction.ErrUnproven
	}
	return err
}

const (
	table = "dblock_versions"
	set   = "migrate.Versions"
)

func accept(ctx context.Context, tx any, name string) (transaction.Tx, error) {
	if ctx == nil {
		return transaction.Tx{}, fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if err := transaction.Name("name", name); err != nil {
		return transaction.Tx{}, err
	}
	return transaction.Of(tx)
}
