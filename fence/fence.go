// Package fence refuses writes of a holder that has lost its lock, in a database that the lock is
// not in.
//
// Where lock and data share a database, Lock.Guard does that, and needs no table. A resource
// elsewhere has to remember by itself what it has seen: the highest fencing token, in a row of
// dblock_fences, looked at in the transaction that writes. Tokens of a lock rise with its grants,
// so a lower one is of a holder whose time is over, whatever it believes.
//
//	lock, err := client.Lock(ctx, "invoice/42") // in one database
//	…
//	tx, err := elsewhere.BeginTx(ctx, nil) // in another, of whatever engine
//	…
//	if err := fence.Check(ctx, tx, "invoice/42", lock.Token()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): somebody else has the lock, and has written
//	}
//	_, err = tx.ExecContext(ctx, "UPDATE …")
//	…
//	err = tx.Commit()
//
// # What is promised
//
// Once a transaction with token 8 has passed, no transaction with token 7 passes, unless the first
// is rolled back; and once one with token 7 has passed, one with token 8 waits until it has ended.
// So what is written under the two never mixes. That holds at every isolation level. Above READ
// COMMITTED a transaction whose snapshot is older than what it finds may fail with the engine's
// serialisation error (PostgreSQL 40001, MariaDB 1020, SQLITE_BUSY_SNAPSHOT): run it again with the
// same token.
//
// It is the first Check with a higher token that ends the old holder, not the grant: until the new
// holder has written, there is nothing of its own to be overwritten.
//
// Everybody who writes the resource must check, each in the transaction that writes, and all with
// tokens of one lock. Call Check first: on MySQL and MariaDB at REPEATABLE READ a transaction reads
// from the moment of its first plain SELECT, and one before Check would not see what the last
// holder wrote.
//
// # Errors
//
// The transaction stays as it was before Check and can go on, except where the engine itself ends
// it: a deadlock on MySQL and MariaDB (1213), which they also find where a transaction that was the
// first to name a resource is rolled back while several others wait for it. Roll it back
// nevertheless, and soon: on MySQL, MariaDB and SQLite it keeps the row, or the one write lock,
// until it ends. Waiting for another transaction ends with the context: on PostgreSQL at its
// deadline, or within deadlock_timeout and 250 ms of being cancelled, on MySQL and MariaDB within
// two seconds, on SQLite at once.
//
// # Tables
//
// migrate.Up(ctx, db, engine, migrate.Fences) makes dblock_fences, with a history of its own;
// neither a client nor the locks' tables are needed in that database. One row per resource stays
// for ever. To delete it is to forget the token: do that only when nobody is left who may come with
// an old one.
//
// A Check is one statement on PostgreSQL and SQLite, two on MySQL and MariaDB, and two round trips
// around it that make it harmless; in a *sql.Tx one more, which asks the server what it is.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/fences/mysqldb"
	"github.com/dblock-go/dblock/gen/fences/postgresdb"
	"github.com/dblock-go/dblock/gen/fences/sqlitedb"
	"github.com/dblock-go/dblock/internal/transaction"
)

// The errors of this package, to be found with errors.Is.
var (
	// ErrStale: the resource has seen a higher token. The error is a *StaleError.
	ErrStale = errors.New("stale token")

	// ErrInvalid: an argument that cannot be right. Nothing was sent to the database.
	ErrInvalid = transaction.ErrInvalid

	// ErrSchema: the table dblock_fences is missing. It is dblock.ErrSchema.
	ErrSchema = driver.ErrSchema
)

// StaleError tells which token was refused.
type StaleError struct {
	Resource string
	Token    int64
	Highest  int64 // that the resource has seen
}

// Error names the resource, the token and the highest one seen.
func (e *StaleError) Error() string {
	return fmt.Sprintf("dblock: fence %q: stale token %d: it has seen %d: the lock went to another holder, which has written", e.Resource, e.Token, e.Highest)
}

// Unwrap makes errors.Is find ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Check returns ErrStale where the resource has seen a higher token, and remembers this one if tx
// commits. tx is a pgx.Tx, or a *sql.Tx on PostgreSQL, MySQL, MariaDB or SQLite. An equal token is
// of the same holder. It waits for transactions that have checked the same resource, until ctx
// ends. The resource is 1 to 255 bytes of UTF-8, compared byte for byte; it need not be the name of
// the lock. After an error tx has written nothing.
func Check(ctx context.Context, tx any, resource string, token int64) error {
	err := check(ctx, tx, resource, token)
	var stale *StaleError
	if err == nil || errors.As(err, &stale) {
		return err
	}
	return fmt.Errorf("dblock: fence %q: %w", resource, err)
}

func check(ctx context.Context, tx any, resource string, token int64) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if err := transaction.Name("resource", resource); err != nil {
		return err
	}
	if token <= 0 {
		return fmt.Errorf("%w: token %d: those of a lock are positive, and advisory and named locks have none", ErrInvalid, token)
	}
	t, err := transaction.Of(tx)
	if err != nil {
		return err
	}
	// decide by what the locked row holds. Where the engine can, an error gives the row back at
	// once.
	decide := func(highest int64, err error) error {
		if err == nil && highest != token {
			return &StaleError{Resource: resource, Token: token, Highest: highest}
		}
		return err
	}
	return t.Do(ctx, transaction.Work{
		Table: "dblock_fences",
		Set:   "migrate.Fences",
		Postgres: func(ctx context.Context, q transaction.Queries) error {
			var highest int64
			_, err := q.Row(ctx, postgresdb.See, []any{resource, token}, &highest)
			return decide(highest, err)
		},
		MySQL: func(ctx context.Context, q transaction.Queries) error {
			var highest int64
			name := transaction.Hex(resource)
			err := q.Exec(ctx, mysqldb.See, name, token, token)
			if err == nil {
				_, err = q.Row(ctx, mysqldb.Highest, []any{name}, &highest)
			}
			return decide(highest, err)
		},
		SQLite: func(ctx context.Context, q transaction.Queries) error {
			var highest int64
			_, err := q.Row(ctx, sqlitedb.See, []any{resource, token}, &highest)
			return decide(highest, err)
		},
	})
}
