package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// template is a database that was migrated once, from which those of the tests are copied: under
// the race detector goose works longer to read a migration than a server to run it.
type template struct {
	mu sync.Mutex // protects db
	db *Database  // nil until somebody needs it; a test that fails while it makes it leaves that to the next

	how string // the options with which PostgreSQL creates it
}

// get returns the template, with its tables. Nothing may connect to it.
func (m *template) get(t testing.TB, s *Server) Database {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db != nil {
		return *m.db
	}
	var db Database
	if s.Kind == KindSQLite {
		folder, err := os.MkdirTemp("", "dblock-template-")
		require.NoError(t, err)
		db = sqliteIn(folder)
	} else {
		db = s.create(t, newName(), m.how)
	}
	db.Migrate(t)
	if s.Kind == KindPostgres {
		db.like = s.copying(t)
	}
	m.db = &db
	return db
}

// copying returns the option for PostgreSQL to copy a database file by file, as all versions before
// 15 do. The default since then, a copy through the log, takes several times as long.
func (s *Server) copying(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), dropTimeout)
	defer cancel()
	var version int
	db, err := s.pool()
	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version)
	}
	switch {
	case err != nil:
		t.Fatal(err)
	case version >= 15_00_00:
		return " STRATEGY file_copy"
	}
	return ""
}

// dropTemplates removes all templates.
func (s *Server) dropTemplates() error {
	err := s.template.drop(s)
	for _, m := range s.encoded {
		err = errors.Join(err, m.drop(s))
	}
	return err
}

// drop removes it.
func (m *template) drop(s *Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return nil
	}
	db := m.db
	m.db = nil
	if s.Kind == KindSQLite {
		return os.RemoveAll(filepath.Dir(db.name))
	}
	return s.drop(db.name)
}

// Database returns a database with dblock's tables, as the template has them, and without rows. On
// PostgreSQL, MySQL and MariaDB a test before this one may have had it: see clean.
func (s *Server) Database(t testing.TB) Database {
	t.Helper()
	return s.Prepared(t, cold, func(Database) {})
}

// cold is the preparation of databases that keep no backends: a test may count the connections.
const cold = ""

// Warm is Database for a test that does not count the connections to it. On PostgreSQL a connection
// to the database uses the backend of an earlier test's connection, if one was kept.
func (s *Server) Warm(t testing.TB) Database {
	t.Helper()
	return s.Prepared(t, "warm", func(Database) {})
}

// Prepared is Warm for a test that changes more than rows: prepare changes a new database, and one
// that was used before goes to a test that names the same preparation. Rows of prepare must be as
// they were when the test ends.
func (s *Server) Prepared(t testing.TB, preparation string, prepare func(db Database)) Database {
	t.Helper()
	if s.reusable() {
		label(t)
		return s.lend(t, preparation, prepare)
	}
	db := s.New(t)
	prepare(db)
	return db
}

// New is Database for a test that depends on what servers keep of rows that were deleted: pages,
// statistics, locks. No test had it before.
func (s *Server) New(t testing.TB) Database {
	t.Helper()
	label(t)
	db := s.copied(t)
	if s.Kind != KindSQLite {
		s.dropAfter(t, db)
	}
	return db
}

// copied makes a copy of the template.
func (s *Server) copied(t testing.TB) Database {
	t.Helper()
	if s.Kind == KindVitess { // which copies no table from one keyspace to another
		db := s.create(t, newName(), "")
		db.Migrate(t)
		return db
	}
	from := s.template.get(t, s)
	switch s.Kind {
	case KindPostgres:
		return s.create(t, newName(), " TEMPLATE "+from.name+from.like)
	case KindSQLite:
		db := sqliteIn(t.TempDir())
		content, err := os.ReadFile(from.name)
		if err == nil {
			err = os.WriteFile(db.name, content, 0o600)
		}
		require.NoError(t, err)
		return db
	}
	for tries := 1; ; tries++ {
		db := s.create(t, newName(), "")
		err := db.copyTables(from)
		if err == nil {
			return db
		}
		if !errors.Is(err, mysql.ErrInvalidConn) || tries == 3 { // a connection that broke is no fault of the test's
			t.Fatalf("dbtest: copy the tables of %s: %v", from.name, err)
		}
	}
}

// copyTables copies what the migrations make on MySQL and MariaDB: tables (CREATE TABLE … LIKE
// copies everything but the rows), their rows, and views, of which each uses only earlier ones.
func (d Database) copyTables(from Database) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := open(d.Kind, d.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	rows, err := pool.QueryContext(ctx, `SELECT t.table_name, v.security_type, v.view_definition,
		(SELECT GROUP_CONCAT(c.column_name) FROM information_schema.columns c
		  WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND COALESCE(c.generation_expression, '') = '')
		FROM information_schema.tables t
		LEFT JOIN information_schema.views v ON v.table_schema = t.table_schema AND v.table_name = t.table_name
		WHERE t.table_schema = ? ORDER BY v.table_name IS NOT NULL, t.table_name`, from.name)
	if err != nil {
		return err
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var name, columns string // without those that are generated, which no INSERT may name
		var security, definition sql.NullString
		if err := rows.Scan(&name, &security, &definition, &columns); err != nil {
			return err
		}
		if definition.Valid {
			statements = append(statements, "CREATE SQL SECURITY "+security.String+" VIEW "+name+" AS "+
				strings.ReplaceAll(definition.String, "`"+from.name+"`.", ""))
			continue
		}
		statements = append(statements, "CREATE TABLE "+name+" LIKE "+from.name+"."+name,
			"INSERT INTO "+name+" ("+columns+") SELECT "+columns+" FROM "+from.name+"."+name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func newName() string { return "dblock_" + strings.ToLower(rand.Text()[:16]) }
