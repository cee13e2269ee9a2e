package tfstate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/http"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrations"
)

//go:embed *.sql
var schemas embed.FS

// Schema returns the statement that makes the table dblock_states of an engine, for the
// application's own migrations. If the table exists, the statement does nothing.
func Schema(engine migrations.Engine) (string, error) {
	text, err := schemas.ReadFile(string(engine) + ".sql")
	if err != nil {
		return "", invalid("the engine is %q: want postgres, mysql (MariaDB too) or sqlite", engine)
	}
	return string(text), nil
}

// statements are those of an engine. Each runs by itself, in a transaction of its own. Their names
// show in the lists of a server's statements.
type statements struct {
	// read always returns a row. Without one it was cut short.
	read string
	// mark raises the token of a state to that of a new lock.
	mark string
	// write replaces the state of a name if its token is still that of the writer's lock. It counts
	// writes, because MySQL does not count a row that stays unchanged.
	write string
}

var statementsOf = map[migrations.Engine]statements{
	migrations.Postgres: {
		read: `-- name: ReadState :one
			SELECT s.token, s.state FROM (SELECT 1 AS one) o LEFT JOIN dblock_states s ON s.name = $1`,
		mark: `-- name: MarkState :execrows
			INSERT INTO dblock_states (name, token) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET token = greatest(dblock_states.token, excluded.token)`,
		write: `-- name: WriteState :execrows
			UPDATE dblock_states SET state = $1, writes = writes + 1 WHERE name = $2 AND token = $3`,
	},
	migrations.MySQL: {
		read: `-- name: ReadState :one
			SELECT s.token, s.state FROM (SELECT 1 AS one) o LEFT JOIN dblock_states s ON s.name = ?`,
		mark: `-- name: MarkState :execrows
			INSERT INTO dblock_states (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		write: `-- name: WriteState :execrows
			UPDATE dblock_states SET state = ?, writes = writes + 1 WHERE name = ? AND token = ?`,
	},
	migrations.SQLite: {
		read: `-- name: ReadState :one
			SELECT s.token, s.state FROM (SELECT 1 AS one) o LEFT JOIN dblock_states s ON s.name = ?`,
		mark: `-- name: MarkState :execrows
			INSERT INTO dblock_states (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)`,
		write: `-- name: WriteState :execrows
			UPDATE dblock_states SET state = ?, writes = writes + 1 WHERE name = ? AND token = ?`,
	},
}

// states is the table dblock_states.
type states struct {
	db *sql.DB
	statements
}

// tries is how often a statement is sent until its answer is proven.
const tries = 3

// errUnproven: the server answered that a statement was done, and it did nothing. MariaDB answers
// so where KILL QUERY or max_statement_time has cut a statement short. Terraform sends the request
// again.
var errUnproven = refusal{
	http.StatusServiceUnavailable, "the database has answered a statement without running it: send the request again",
}

// get returns the state of a name and the token of its last lock. nil: there is no state; 0: there
// was no lock.
func (s states) get(ctx context.Context, name string) (state []byte, token int64, err error) {
	for range tries {
		var known sql.NullInt64
		if err = s.db.QueryRowContext(ctx, s.read, name).Scan(&known, &state); !errors.Is(err, sql.ErrNoRows) {
			return state, known.Int64, err
		}
	}
	return nil, 0, errUnproven
}

// raise refuses the writes of earlier locks from now on. A lock that was lost meanwhile refuses
// none of its successor's: the token of a name never falls.
func (s states) raise(ctx context.Context, name string, token int64) error {
	_, err := s.change(ctx, name, func(known int64) bool { return known >= token }, s.mark, name, token)
	return err
}

// put writes a state under the lock with the token. It returns errGone if a later lock was granted.
func (s states) put(ctx context.Context, name string, token int64, state []byte) error {
	changed, err := s.change(ctx, name, func(known int64) bool { return known != token }, s.write, state, name, token)
	if err == nil && !changed {
		return errGone
	}
	return err
}

// change runs a statement. That no row was changed is believed only if the token of the state, as
// it is read then, needs no change.
func (s states) change(
	ctx context.Context, name string, unneeded func(known int64) bool, statement string, args ...any,
) (changed bool, err error) {
	for range tries {
		done, err := s.db.ExecContext(ctx, statement, args...)
		if err != nil {
			return false, err
		}
		if rows, err := done.RowsAffected(); err != nil || rows > 0 {
			return rows > 0, err
		}
		if _, known, err := s.get(ctx, name); err != nil || unneeded(known) {
			return false, err
		}
	}
	return false, errUnproven
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("dblock: tfstate: %w: %s", dblock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
