package tfstate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

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

// statements are those of an engine. Each runs by itself, in a transaction of its own.
type statements struct {
	read string
	// mark raises the token of a state to that of a new lock.
	mark string
	// write replaces the state of a name if its token is still that of the writer's lock. It counts
	// writes, because MySQL does not count a row that stays unchanged.
	write string
}

var statementsOf = map[migrations.Engine]statements{
	migrations.Postgres: {
		read: `SELECT state FROM dblock_states WHERE name = $1`,
		mark: `INSERT INTO dblock_states (name, token) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET token = greatest(dblock_states.token, excluded.token)`,
		write: `UPDATE dblock_states SET state = $1, writes = writes + 1 WHERE name = $2 AND token = $3`,
	},
	migrations.MySQL: {
		read: `SELECT state FROM dblock_states WHERE name = ?`,
		mark: `INSERT INTO dblock_states (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		write: `UPDATE dblock_states SET state = ?, writes = writes + 1 WHERE name = ? AND token = ?`,
	},
	migrations.SQLite: {
		read: `SELECT state FROM dblock_states WHERE name = ?`,
		mark: `INSERT INTO dblock_states (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)`,
		write: `UPDATE dblock_states SET state = ?, writes = writes + 1 WHERE name = ? AND token = ?`,
	},
}

// states is the table dblock_states.
type states struct {
	db *sql.DB
	statements
}

// get returns the state of a name; nil: there is none.
func (s states) get(ctx context.Context, name string) (state []byte, err error) {
	err = s.db.QueryRowContext(ctx, s.read, name).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return state, err
}

// raise refuses the writes of earlier locks from now on. A lock that was lost meanwhile refuses
// none of its successor's: the token of a name never falls.
func (s states) raise(ctx context.Context, name string, token int64) error {
	_, err := s.db.ExecContext(ctx, s.mark, name, token)
	return err
}

// put writes a state under the lock with the token. It returns errGone if a later lock was granted.
func (s states) put(ctx context.Context, name string, token int64, state []byte) error {
	done, err := s.db.ExecContext(ctx, s.write, state, name, token)
	if err != nil {
		return err
	}
	if rows, err := done.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	return errGone
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("dblock: tfstate: %w: %s", dblock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
