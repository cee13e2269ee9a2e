package transaction

import (
	"errors"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// ErrUnproven is the error of a statement that the server has answered, and that had no effect.
// MariaDB answers "OK, 0 rows" to some statements that a KILL QUERY or max_statement_time has cut
// short, and the transaction could commit the rest. A trigger can swallow a write, too.
var ErrUnproven = driver.Fail(driver.ErrRetry,
	stale("the server answered that a statement was done, and it did nothing: "+
		"a KILL QUERY or a limit for the time of statements may have cut it short, or, if that goes on, a trigger "+
		"on dblock's tables swallows it: roll back, and begin the transaction anew"))

// stale is an error after which a transaction has to be run again, with the SQLSTATE of a
// serialization failure.
type stale string

func (s stale) Error() string { return string(s) }

func (stale) SQLState() string { return "40001" }

// ErrSwallowed is ErrUnproven on PostgreSQL and SQLite, which cut no statement short without an
// error: the next try would have the same result.
var ErrSwallowed = driver.Fail(driver.ErrConfig,
	errors.New("the database answered that a statement was done, and it did nothing: "+
		"a trigger, a rule or a row level policy on dblock's tables swallows writes"))

// MustAct reports whether a statement must affect at least one row: its kind, which sqlc has in the
// first line, is :exec. A statement that may affect no row is of another kind, and its caller
// checks the answer.
func MustAct(text string) bool {
	kind, _, _ := strings.Cut(text, "\n")
	return strings.HasSuffix(kind, " :exec")
}
