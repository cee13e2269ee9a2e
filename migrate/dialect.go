package migrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock/internal/tables"
)

// errLocked says that another run has the lock. The caller holds nothing, and nothing was done.
var errLocked = errors.New("the migration lock is taken")

// endTimeout bounds each statement that ends a run. The context of the run may have ended before.
const endTimeout = 10 * time.Second

// dialect locks, begins and ends a run on one engine.
type dialect interface {
	// store keeps the versions in a table. tableExists reports whether the table exists.
	store(table string) (database.Store, error)
	tableExists(ctx context.Context, db database.DBTxConn, store database.Store) (bool, error)
	// placed returns a statement with the place of the tables.
	placed(text string) string
	// databaseID returns the id of the database for a SELECT of the row of dblock_schema.
	databaseID(ctx context.Context, conn *sql.Conn) (string, error)
	// begin takes the lock on conn, without waiting for it, and begins the transaction. After an
	// error conn has neither.
	begin(ctx context.Context, conn *sql.Conn) error
	// end commits or rolls back, and releases the lock in any case. Only a commit can fail.
	end(ctx context.Context, conn *sql.Conn, commit bool) error
}

// dialectOf returns the dialect of an engine, for tables in a place; nil: there is no such engine.
func dialectOf(engine Engine, in *tables.In) dialect {
	switch engine {
	case Postgres:
		return postgres{in}
	case MySQL:
		return mysql{in}
	case SQLite:
		return sqlite{}
	}
	return nil
}

// lockID is the advisory lock of a run, "dblock_m" in ASCII. Goose's own lock is another one, which
// the application's own migrations use.
const lockID int64 = 0x64626c6f636b5f6d

type postgres struct{ in *tables.In }

func (p postgres) placed(text string) string { return p.in.Postgres(text) }

func (postgres) databaseID(context.Context, *sql.Conn) (string, error) {
	return "replace(gen_random_uuid()::text, '-', '')", nil
}

func (p postgres) store(table string) (database.Store, error) {
	return database.NewStore(database.DialectPostgres, p.placed(table))
}

func (p postgres) tableExists(ctx context.Context, db database.DBTxConn, store database.Store) (there bool, err error) {
	if p.in == nil {
		return gooseTableExists(ctx, db, store)
	}
	err = db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", store.Tablename()).Scan(&there)
	return there, err
}

// makeSchema makes a missing schema. It first looks for the schema, because CREATE SCHEMA needs a
// right even if the schema exists.
func (p postgres) makeSchema(ctx context.Context, conn *sql.Conn) error {
	if p.in == nil {
		return nil
	}
	var there bool
	err := conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)",
		p.in.String()).Scan(&there)
	if err == nil && !there {
		_, err = conn.ExecContext(ctx, `CREATE SCHEMA "`+p.in.String()+`"`)
	}
	return err
}

func (p postgres) begin(ctx context.Context, conn *sql.Conn) (err error) {
	defer func() {
		if err != nil && !errors.Is(err, errLocked) {
			discard(conn)
		}
	}()
	if _, err := conn.ExecContext(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	var locked bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockID).Scan(&locked); err != nil {
		return err
	}
	if locked {
		return p.makeSchema(ctx, conn)
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return err
	}
	return errLocked
}

func (postgres) end(ctx context.Context, conn *sql.Conn, commit bool) error {
	err := finish(ctx, conn, commit)
	if err != nil {
		discard(conn)
	}
	return ifCommitted(commit, err)
}

type mysql struct{ in *tables.In }

func (m mysql) placed(text string) string { return m.in.MySQLMigration(text) }

// databaseID takes the id from dblock_locks, whose rows have it by default. MariaDB quotes that
// default. A server shows no columns to a user without rights to them.
func (m mysql) databaseID(ctx context.Context, conn *sql.Conn) (string, error) {
	var id sql.NullString
	err := conn.QueryRowContext(ctx, m.placed("SELECT MAX(REPLACE(column_default, '''', '')) "+
		"FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' "+
		"AND column_name = 'database_id'")).Scan(&id)
	if err == nil && id.String == "" {
		err = errors.New("the server shows no default of dblock_locks.database_id, which has the id of the database: " +
			"run Up as a user with all rights to the tables")
	}
	return "'" + id.String + "' FROM DUAL", err
}

func (m mysql) store(table string) (database.Store, error) {
	return database.NewStore(database.DialectMySQL, m.placed(table))
}

// tableExists asks without goose, whose condition on DATABASE() finds no table on Vitess.
func (m mysql) tableExists(ctx context.Context, db database.DBTxConn, store database.Store) (there bool, err error) {
	table := store.Tablename()
	if m.in != nil {
		table = Locks.Table()
	}
	err = db.QueryRowContext(ctx, m.placed("SELECT COUNT(*) > 0 FROM information_schema.tables "+
		"WHERE table_schema = DATABASE() AND table_name = ?"), table).Scan(&there)
	return there, err
}

// lockName names the lock after the database, because GET_LOCK is server-wide. A name has at most
// 64 characters: databases with the same first 49 characters wait for each other. The name has no
// hash, because MySQL 9.7 has no MD5 any more.
const lockName = "LEFT(CONCAT('dblock:migrate:', DATABASE()), 64)"

func (m mysql) begin(ctx context.Context, conn *sql.Conn) error {
	var locked sql.NullInt64
	if err := conn.QueryRowContext(ctx, m.placed("SELECT GET_LOCK("+lockName+", 0)")).Scan(&locked); err != nil {
		discard(conn) // the server may have taken the lock
		return err
	}
	switch {
	case !locked.Valid: // of a NULL name, or for want of memory
		return errors.New("GET_LOCK returned NULL: does the connection name a database?")
	case locked.Int64 == 0:
		return errLocked
	}
	return nil
}

// end commits although DDL has committed already, because autocommit may be off in the caller's
// sessions. On Vitess, DO releases nothing.
func (m mysql) end(ctx context.Context, conn *sql.Conn, commit bool) error {
	err := finish(ctx, conn, commit)
	released := execute(ctx, conn, m.placed("SELECT RELEASE_LOCK("+lockName+")"))
	if err != nil || released != nil {
		discard(conn)
	}
	return ifCommitted(commit, err)
}

// sqlite never discards a connection: it may be the only one to a database in memory.
type sqlite struct{}

func (sqlite) placed(text string) string { return text }

func (sqlite) databaseID(context.Context, *sql.Conn) (string, error) {
	return "lower(hex(randomblob(16)))", nil
}

func (sqlite) store(table string) (database.Store, error) {
	return database.NewStore(database.DialectSQLite3, table)
}

func (sqlite) tableExists(ctx context.Context, db database.DBTxConn, store database.Store) (bool, error) {
	var there bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)",
		store.Tablename()).Scan(&there)
	return there, err
}

// begin does not wait inside SQLite, because the busy handler sleeps on when the context has ended.
func (sqlite) begin(ctx context.Context, conn *sql.Conn) error {
	var patience int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return errors.Join(err, execute(ctx, conn, fmt.Sprintf("PRAGMA busy_timeout = %d", patience)))
}

// end rolls back where COMMIT failed. With a reader in its way (SQLITE_BUSY, in rollback-journal
// mode) the transaction would stay open. The run is retried from the start. ROLLBACK fails only
// where SQLite has rolled back by itself.
func (sqlite) end(ctx context.Context, conn *sql.Conn, commit bool) error {
	err := finish(ctx, conn, commit)
	if err != nil && commit {
		_ = finish(ctx, conn, false)
	}
	return ifCommitted(commit, err)
}

func finish(ctx context.Context, conn *sql.Conn, commit bool) error {
	if commit {
		return execute(ctx, conn, "COMMIT")
	}
	return execute(ctx, conn, "ROLLBACK")
}

// ifCommitted drops the error of a ROLLBACK: the run has failed already, or there was nothing to
// do.
func ifCommitted(commit bool, err error) error {
	if commit {
		return err
	}
	return nil
}

// execute runs a statement even if the context has ended.
func execute(ctx context.Context, conn *sql.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, statement)
	return err
}

// discard keeps a connection with a lock or an open transaction from returning to the caller's
// pool: the pool finds it closed. To return driver.ErrBadConn from Raw would do that too, but then
// goose's own Close of the connection fails.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(c any) error {
		if c, ok := c.(driver.Conn); ok {
			_ = c.Close()
		}
		return nil
	})
}

func gooseTableExists(ctx context.Context, db database.DBTxConn, store database.Store) (bool, error) {
	s, ok := store.(database.StoreExtender)
	if !ok {
		return false, errors.ErrUnsupported
	}
	return s.TableExists(ctx, db)
}
