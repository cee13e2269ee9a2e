package transaction

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"
)

// Turn is the time for which a statement waits for a row before the caller's context is checked
// again. It is shorter than the shortest innodb_lock_wait_timeout of MySQL: an error of that limit
// may roll back the whole transaction.
//
// On MySQL it stands in each locking SELECT, on MariaDB in any statement. The limit belongs to the
// statement: no setting of the connection has to be restored, which may have gone back to the pool
// by then. Each of the two servers reads the other's syntax as a comment. A statement that its
// limit has ended is undone alone, with any innodb_rollback_on_timeout.
const Turn = 500 * time.Millisecond

// IsTurnOver reports whether an error comes from the limit of a statement. TiDB has several.
func IsTurnOver(err error) bool {
	n := mysqlNumber(err)
	return n == 3024 || n == 1969 || errors.Is(err, ErrCut) ||
		n == unknownError && strings.Contains(err.Error(), "context canceled")
}

// ErrCut is the error of a statement of MariaDB that reported success although its limit had ended
// it. Only its missing effect shows that.
var ErrCut = errors.New("the statement was ended by its time limit, and reported success")

// Hex returns the form in which a name is sent: hexadecimal digits, which are the same in every
// character set. PostgreSQL reads the bytes of a parameter in client_encoding. Statements decode
// the digits by convert_from(decode($1, 'hex'), 'UTF8').
//
// MySQL and MariaDB decode them by UNHEX(CONVERT(? USING latin1)). A name itself, as string or
// []byte, is a parameter of character_set_client, which the server first converts to
// character_set_connection; no CAST reverts that. The CONVERT is for character sets of more than
// one byte (ucs2, utf16, utf32).
func Hex(name string) string { return hex.EncodeToString([]byte(name)) }

const (
	lockWaitTimeout = 1205
	noSuchTable     = 1146
	noSuchSavepoint = 1305
	unknownError    = 1105
)

var mysql = engine{
	work: func(w Work) func(context.Context, Queries) error { return w.MySQL },
	run:  runMySQL,
	missing: func(_ context.Context, _ Queries, _ string, err error) bool {
		return mysqlNumber(err) == noSuchTable
	},
	place: `SELECT CONCAT('database "', COALESCE(DATABASE(), ''), '"')`,
}

// runMySQL needs no savepoint: an error rolls back its statement alone, a deadlock the whole
// transaction. A savepoint would not release row locks either.
func runMySQL(ctx, quiet context.Context, q Queries, work func(context.Context, Queries) error) error {
	on := onMySQL{Queries: q}
	var seconds int64
	var open sql.NullBool
	if _, err := q.Row(quiet, where, nil, &seconds, &on.mariaDB, &on.database, &open); err != nil {
		return err
	}
	if !open.Valid {
		if err := OpenMySQL(quiet, q, ""); err != nil {
			return err
		}
	} else if !open.Bool {
		return ErrEnded
	}
	patience := func() (time.Duration, error) { return time.Duration(seconds) * time.Second, nil }
	err := turns(ctx, func() error { return work(quiet, on) }, IsTurnOver, patience)
	if IsTurnOver(err) && ctx.Err() == nil {
		err = impatient{err}
	}
	return err
}

// where is a statement that reads no table: at REPEATABLE READ that would begin the snapshot. Its
// last column is OpenMySQL of the servers that have a variable, of which each reads the other's as
// a comment, and null on others.
const where = "SELECT @@SESSION.innodb_lock_wait_timeout, VERSION() LIKE '%MariaDB%', CONCAT_WS('/', @@hostname, " +
	"@@port, DATABASE()), COALESCE(/*M! " + OpenInMariaDB + " <> 0,*/ /*T! " + OpenInTiDB + " <> 0,*/ NULL)"

// onMySQL are Queries of MySQL or MariaDB.
type onMySQL struct {
	Queries
	mariaDB  bool
	database string
}

// impatient is the error of a wait that lasted as long as innodb_lock_wait_timeout allows. It is
// retryable, as the server's own would be. The transaction can go on.
type impatient struct{ cause error }

func (e impatient) Error() string {
	return "another transaction is in the way for longer than innodb_lock_wait_timeout: " + e.cause.Error()
}

func (e impatient) Unwrap() error { return e.cause }

func (impatient) SQLState() string { return "40001" }

// LockInTurn locks a row by a SELECT with its whole key, which waits for a turn at most. It returns
// false if there is no row.
func LockInTurn(ctx context.Context, q Queries, text string, args []any, into ...any) (bool, error) {
	began := time.Now()
	there, err := q.Row(ctx, text, args, into...)
	if err == nil && !there && time.Since(began) >= Turn {
		err = ErrCut
	}
	return there, err
}

// CutSince returns the error of a statement that was sent at began, was answered, and had no
// effect: ErrCut if its limit may have ended it, else ErrUnproven.
func CutSince(began time.Time) error {
	if time.Since(began) >= Turn {
		return ErrCut
	}
	return ErrUnproven
}

// Rows remembers which rows this process has inserted on MySQL, committed or not. It only decides
// which statement comes first where a row may be missing. An INSERT waits without a limit for a row
// that another transaction has locked. A locking SELECT of a missing row locks the gap, and two
// transactions that have locked one gap block each other's INSERT.
type Rows struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// manyRows limits the rows that are remembered. At the limit all are forgotten.
const manyRows = 10_000

// Known reports whether a locking SELECT comes first. On MariaDB it never does: there an INSERT has
// a limit.
func (r *Rows) Known(q Queries, name string) bool {
	on := q.(onMySQL)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.names[on.database+"/"+name]
	return known && !on.mariaDB
}

// Add remembers a row. It MUST be called after the INSERT: before it, a SELECT would lock the gap.
func (r *Rows) Add(q Queries, name string) {
	on := q.(onMySQL)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil || len(r.names) >= manyRows {
		r.names = map[string]struct{}{}
	}
	r.names[on.database+"/"+name] = struct{}{}
}
