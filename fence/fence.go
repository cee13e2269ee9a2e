// Package fence refuses the writes of a holder that has lost its lock, in a database other than the
// lock's.
//
// Where lock and data share a database, Client.Guard does that, and needs no table. A resource
// elsewhere must remember the highest fencing token that it has seen. It does so in a row of
// dblock_fences, which the writing transaction checks. The tokens of a lock rise with its grants,
// so a lower token is that of a former holder, even if that holder believes to have the lock.
//
//	lock, err := client.Lock(ctx, "invoice/42") // in one database
//	…
//	tx, err := elsewhere.BeginTx(ctx, nil) // in another, of any engine
//	…
//	if err := fence.Check(ctx, tx, "invoice/42", lock.Token()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): another holder has the lock, and has written
//	}
//	_, err = tx.ExecContext(ctx, "UPDATE …")
//	…
//	err = tx.Commit()
//
// # Promises
//
// Once a transaction with token 8 has passed, no transaction with token 7 passes, unless the first
// is rolled back. Once a transaction with token 7 has passed, one with token 8 waits until the
// first has ended. So writes under the two never mix. That holds at every isolation level. Above
// READ COMMITTED a transaction with a stale snapshot may fail with ErrRetry, the engine's
// serialization error (PostgreSQL 40001, MariaDB 1020, SQLITE_BUSY_SNAPSHOT): run it again with the
// same token.
//
// The old holder is shut out by the first Check with a higher token, not by the grant: until the
// new holder has written, there is no write that the old holder could overwrite.
//
// Every writer of the resource must call Check in the transaction that writes, with tokens of one
// lock. Call Check before other statements: on MySQL and MariaDB at REPEATABLE READ a transaction
// reads as of its first plain SELECT, and with a SELECT before Check it would not see the writes of
// the last holder.
//
// # Errors
//
// The transaction stays as it was before Check and can go on, except where the engine itself ends
// it: a deadlock on MySQL and MariaDB (1213). They also report one where the first transaction ever
// to check a resource is rolled back while several others wait for it. Roll the transaction back
// nevertheless, and soon: on MySQL, MariaDB and SQLite it keeps the row, or the one write lock,
// until it ends. A transaction that the server has ended, or that was aborted by an error, gets
// dblock.ErrTxDone. One that is READ ONLY gets dblock.ErrReadOnly. Waiting for another transaction
// ends with the context: on PostgreSQL at its deadline, or within deadlock_timeout and 250 ms of
// being cancelled, on MySQL and MariaDB within a second. There are two exceptions. On MySQL the
// first Check of a resource in a process waits as an INSERT does: five seconds after the context
// has ended the connection is broken, and the transaction with it. On SQLite a transaction that has
// neither read nor written waits for as long as its busy_timeout says. No wait is longer than the
// session's own lock timeout.
//
// Check changes no setting of the connection: ctx may be the one that the transaction was begun
// with.
//
// # Tables
//
// migrate.Up(ctx, db, engine, migrate.Fences) makes dblock_fences, with a history of its own. That
// database needs neither a client nor the locks' tables. One row per resource stays for ever.
// Deleting it forgets the token: do that only when no writer with an old token is left.
//
// A Check is one statement on PostgreSQL and SQLite, and two or three on MySQL and MariaDB. To keep
// the transaction usable costs one more round trip on MySQL, MariaDB and SQLite, and two on
// PostgreSQL. To prove that it is open costs two more on MySQL, one on SQLite, and none elsewhere.
// In a *sql.Tx one more asks the server for its version.
package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/gen/fences/mysqldb"
	"github.com/dblock-go/dblock/gen/fences/postgresdb"
	"github.com/dblock-go/dblock/gen/fences/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// The errors of this package, for errors.Is.
var (
	// ErrStale: the resource has seen a higher token. The error is a *StaleError.
	ErrStale = errors.New("stale token")

	// ErrInvalid: an argument is wrong. Nothing was sent to the database.
	ErrInvalid = transaction.ErrInvalid

	// ErrSchema: the table dblock_fences is missing. It is dblock.ErrSchema.
	ErrSchema = driver.ErrSchema

	// ErrRetry: the transaction lost a race: roll it back, and run it again with the same token. It
	// is dblock.ErrRetry.
	ErrRetry = driver.ErrRetry
)

// StaleError has the token that was refused.
type StaleError struct {
	Resource string
	Token    int64
	Highest  int64 // token that the resource has seen
}

// Error names the resource, the token and the highest one seen.
func (e *StaleError) Error() string {
	return fmt.Sprintf("dblock: fence %q: stale token %d: it has seen %d: the lock went to another holder, which "+
		"has written", e.Resource, e.Token, e.Highest)
}

// Unwrap makes errors.Is find ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Check returns ErrStale where the resource has seen a higher token, and remembers this one if tx
// commits. tx is a pgx.Tx, or a *sql.Tx on PostgreSQL, MySQL, MariaDB or SQLite. An equal token
// passes, because it is that of the same holder. Check waits for transactions that have checked the
// same resource, until ctx ends. The resource is 1 to 255 bytes of UTF-8, compared byte for byte.
// It need not be the name of the lock. After an error Check has written nothing in tx.
func Check(ctx context.Context, tx any, resource string, token int64) error {
	err := check(ctx, tx, resource, token)
	var stale *StaleError
	if err == nil || errors.As(err, &stale) {
		return err
	}
	return fmt.Errorf("dblock: fence %q: %w", resource, err)
}

// rows remembers the rows of dblock_fences that this process has inserted.
var rows transaction.Rows

func check(ctx context.Context, tx any, resource string, token int64) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if err := transaction.Name("resource", resource); err != nil {
		return err
	}
	if token <= 0 {
		return fmt.Errorf("%w: token %d: those of a lock are positive, and advisory and named locks have none",
			ErrInvalid, token)
	}
	t, err := transaction.Of(tx)
	if err != nil {
		return err
	}
	// decide decides by the token in the locked row. Where the engine can, an error releases the
	// row at once.
	decide := func(highest int64, err error) error {
		switch {
		case err != nil:
			return err
		case highest < token: // also without a row: the token was not written
			return transaction.ErrUnproven
		case highest > token:
			return &StaleError{Resource: resource, Token: token, Highest: highest}
		}
		return nil
	}
	return t.Do(ctx, transaction.Work{
		Table: "dblock_fences",
		Set:   "migrate.Fences",
		Postgres: func(ctx context.Context, q transaction.Queries) error {
			var highest int64
			_, err := q.Row(ctx, postgresdb.See, []any{transaction.Hex(resource), token}, &highest)
			return decide(highest, err)
		},
		MySQL: func(ctx context.Context, q transaction.Queries) error {
			name := transaction.Hex(resource)
			lock := func() (highest int64, there bool, err error) {
				there, err = transaction.LockInTurn(ctx, q, mysqldb.Highest, []any{name}, &highest)
				return highest, there, err
			}
			if rows.Known(q, resource) {
				if highest, there, err := lock(); err != nil || there && highest >= token {
					return decide(highest, err)
				}
			}
			began := time.Now()
			if err := q.Exec(ctx, mysqldb.See, name, token, token); err != nil {
				return err
			}
			rows.Add(q, resource)
			highest, there, err := lock()
			if err == nil && (!there || highest < token) {
				err = transaction.CutSince(began)
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
