package httpidem

import (
	"context"
	"database/sql"
	"embed"
	"errors"

	"github.com/dblock-go/dblock/migrations"
)

// Database has the application's transactions of type TX. SQL makes one of database/sql, and
// package httpidempgx one of a pool of pgx.
type Database[TX any] interface {
	Begin(ctx context.Context) (TX, error)
	Commit(ctx context.Context, tx TX) error
	Rollback(ctx context.Context, tx TX) error
	// Exec returns the number of rows that the statement has changed.
	Exec(ctx context.Context, tx TX, text string, args ...any) (rows int64, err error)
	// Row scans the only row. It returns false if there is none.
	Row(ctx context.Context, tx TX, text string, args []any, into ...any) (bool, error)
	// Engine is that of package migrate.
	Engine() migrations.Engine
}

// SQL returns the database of a pool of database/sql.
func SQL(db *sql.DB, engine migrations.Engine) Database[*sql.Tx] { return sqlDatabase{db, engine} }

type sqlDatabase struct {
	db     *sql.DB
	engine migrations.Engine
}

func (d sqlDatabase) Engine() migrations.Engine { return d.engine }

func (d sqlDatabase) Begin(ctx context.Context) (*sql.Tx, error) { return d.db.BeginTx(ctx, nil) }

func (sqlDatabase) Commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

func (sqlDatabase) Rollback(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }

func (sqlDatabase) Exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (rows int64, err error) {
	done, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

func (sqlDatabase) Row(ctx context.Context, tx *sql.Tx, text string, args []any, into ...any) (bool, error) {
	err := tx.QueryRowContext(ctx, text, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

//go:embed *.sql
var schemas embed.FS

// Schema returns the statements that make the table dblock_answers of an engine, for the
// application's own migrations. If the table exists, they do nothing.
func Schema(engine migrations.Engine) (string, error) {
	text, err := schemas.ReadFile(string(engine) + ".sql")
	if err != nil {
		return "", invalid("the engine is %q: want postgres, mysql (MariaDB too) or sqlite", engine)
	}
	return string(text), nil
}

// statements are those of an engine. They run in the transaction of a request. Their names show in
// the lists of a server's statements.
type statements struct {
	// read reads an answer that has not expired; status 0: there is none. It always returns a row.
	// Without one it was cut short.
	read  string
	write string // an answer, in place of one that has expired
	sweep string // all answers that have expired
}

var statementsOf = map[migrations.Engine]statements{
	migrations.Postgres: {
		read: `-- name: ReadAnswer :one
			SELECT a.fingerprint, COALESCE(a.status, 0), a.header, a.body FROM (SELECT 1 AS one) o
			LEFT JOIN dblock_answers a ON a.id = $1 AND a.expires > extract(epoch FROM clock_timestamp())`,
		write: `-- name: WriteAnswer :execrows
			INSERT INTO dblock_answers (id, fingerprint, status, header, body, expires)
			VALUES ($1, $2, $3, $4, $5, extract(epoch FROM clock_timestamp())::bigint + $6)
			ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
				header = excluded.header, body = excluded.body, expires = excluded.expires`,
		sweep: `-- name: SweepAnswers :execrows
			DELETE FROM dblock_answers WHERE expires <= extract(epoch FROM clock_timestamp())`,
	},
	migrations.MySQL: {
		read: `-- name: ReadAnswer :one
			SELECT a.fingerprint, COALESCE(a.status, 0), a.header, a.body FROM (SELECT 1 AS one) o
			LEFT JOIN dblock_answers a ON a.id = ? AND a.expires > UNIX_TIMESTAMP()`,
		write: `-- name: WriteAnswer :execrows
			REPLACE INTO dblock_answers (id, fingerprint, status, header, body, expires)
			VALUES (?, ?, ?, ?, ?, UNIX_TIMESTAMP() + ?)`,
		sweep: `-- name: SweepAnswers :execrows
			DELETE FROM dblock_answers WHERE expires <= UNIX_TIMESTAMP()`,
	},
	migrations.SQLite: {
		read: `-- name: ReadAnswer :one
			SELECT a.fingerprint, COALESCE(a.status, 0), a.header, a.body FROM (SELECT 1 AS one) o
			LEFT JOIN dblock_answers a ON a.id = ? AND a.expires > unixepoch()`,
		write: `-- name: WriteAnswer :execrows
			REPLACE INTO dblock_answers (id, fingerprint, status, header, body, expires)
			VALUES (?, ?, ?, ?, ?, unixepoch() + ?)`,
		sweep: `-- name: SweepAnswers :execrows
			DELETE FROM dblock_answers WHERE expires <= unixepoch()`,
	},
}
