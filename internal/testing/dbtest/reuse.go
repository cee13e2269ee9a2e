package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// shelf keeps the databases that tests have left, emptied, for later tests. To make and drop a
// database takes a server several times as long as to empty one.
type shelf struct {
	mu   sync.Mutex
	idle map[string][]*used // by how they were prepared; the one emptied first comes first
}

// used is a database that serves one test after another.
type used struct {
	Database
	prepared string
	born     contents // before the first test
}

// contents are what a database has when no test has touched it.
type contents struct {
	schema string            // all that CREATE, ALTER and GRANT change, and the statistics of the planner
	tables []string          // base tables, in order
	rows   map[string]string // of the tables that have some
}

// emptyTimeout bounds the emptying. A statement waits for locks that a test has left for at most a
// second. Such a database is dropped.
const emptyTimeout = 10 * time.Second

// reusable reports whether databases of the kind are emptied and used again. The others take no
// longer to make than to empty, or are seldom tested.
func (s *Server) reusable() bool {
	return s.Kind == KindPostgres || s.Kind == KindMySQL || s.Kind == KindMariaDB
}

// take returns the database that has been idle for longest of those that were prepared alike.
func (h *shelf) take(prepared string) *used {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.idle[prepared]) == 0 {
		return nil
	}
	u := h.idle[prepared][0]
	h.idle[prepared] = h.idle[prepared][1:]
	return u
}

func (h *shelf) put(u *used) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle == nil {
		h.idle = map[string][]*used{}
	}
	h.idle[u.prepared] = append(h.idle[u.prepared], u)
}

// drop drops the idle databases.
func (h *shelf) drop(s *Server) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, idle := range h.idle {
		for _, u := range idle {
			u.end()
			err = errors.Join(err, s.drop(u.name))
		}
	}
	clear(h.idle)
	return err
}

// lend returns a database of the shelf, or a new one, until the test has ended. Then it is emptied,
// and goes to the shelf only if nothing is left in it: see clean.
func (s *Server) lend(t testing.TB, preparation string, prepare func(db Database)) Database {
	t.Helper()
	u := s.shelf.take(preparation)
	if u == nil {
		u = &used{Database: s.copied(t), prepared: preparation}
		prepare(u.Database)
		if s.Kind == KindPostgres && preparation != cold {
			if address, err := net.ResolveTCPAddr("tcp", u.Addr(t)); err == nil { // a socket of the file system is none
				u.warm = &warm{address: address}
			}
		}
		err := u.onConn(func(ctx context.Context, conn *sql.Conn) (err error) {
			u.born, err = u.read(ctx, conn)
			return err
		})
		if err != nil {
			t.Fatalf("dbtest: read what a new database on %s has: %v", s.Kind, err)
		}
	}
	t.Cleanup(func() {
		if err := u.onConn(u.clean); err == nil {
			s.shelf.put(u)
			return
		}
		u.end()
		s.mustDrop(t, u.Database)
	})
	return u.Database
}

// end closes the backends that were kept.
func (u *used) end() {
	if u.warm != nil {
		u.warm.end()
	}
}

var errLeft = errors.New("the test has left something behind")

// clean deletes what a test has left: the rows of tables that had none, and tables that were not
// there. It fails where something else has changed, or a connection is open: its statements could
// still come.
func (u *used) clean(ctx context.Context, conn *sql.Conn) error {
	if err := u.alone(ctx, conn); err != nil {
		return err
	}
	tables, err := u.tables(ctx, conn)
	if err != nil {
		return err
	}
	var statements []string
	for _, table := range tables {
		switch _, kept := u.born.rows[table]; {
		case !slices.Contains(u.born.tables, table):
			statements = append(statements, "DROP TABLE "+table)
		case !kept:
			statements = append(statements, "DELETE FROM "+table)
		}
	}
	if _, err := conn.ExecContext(ctx, strings.Join(statements, ";")); err != nil {
		return err
	}
	now, err := u.read(ctx, conn)
	if err != nil {
		return err
	}
	if now.schema != u.born.schema || len(now.rows) != len(u.born.rows) {
		return errLeft
	}
	for table, rows := range u.born.rows {
		if now.rows[table] != rows {
			return errLeft
		}
	}
	return nil
}

// alone waits until no other connection to the database is open. A server needs a moment to notice
// that a client has closed one.
func (u *used) alone(ctx context.Context, conn *sql.Conn) error {
	others := "SELECT count(*) FROM " + u.Processes() + " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	if u.Kind == KindPostgres {
		others = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> " +
			"pg_backend_pid() AND backend_type = 'client backend' AND application_name <> '" + warmName + "') + " +
			"(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database())"
	}
	for pause := time.Millisecond; ; pause *= 2 {
		var n int
		if err := conn.QueryRowContext(ctx, others).Scan(&n); err != nil || n == 0 {
			return err
		}
		if pause > 100*time.Millisecond {
			return errLeft
		}
		time.Sleep(pause)
	}
}

// onConn calls f with a connection of its own that waits for no lock for long.
func (u *used) onConn(f func(ctx context.Context, conn *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), emptyTimeout)
	defer cancel()
	db, limit := u.Database, "SET lock_timeout = '1s'"
	if u.Kind != KindPostgres {
		limit = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
		c, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			return err
		}
		c.MultiStatements = true
		db.DSN = c.FormatDSN()
	}
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	return f(ctx, conn)
}

func (u *used) read(ctx context.Context, conn *sql.Conn) (c contents, err error) {
	queries := mysqlSchema
	if u.Kind == KindPostgres {
		queries = postgresSchema
	}
	var schema strings.Builder
	for _, query := range queries {
		text, err := textOf(ctx, conn, query)
		if err != nil {
			return c, fmt.Errorf("%s: %w", query, err)
		}
		schema.WriteString(text)
	}
	c.schema, c.rows = schema.String(), map[string]string{}
	if c.tables, err = u.tables(ctx, conn); err != nil {
		return c, err
	}
	for _, table := range c.tables {
		text, err := textOf(ctx, conn, "SELECT * FROM "+table)
		if err != nil {
			return c, err
		}
		if text != "" {
			c.rows[table] = text
		}
	}
	return c, nil
}

// tables returns the names of the base tables.
func (u *used) tables(ctx context.Context, conn *sql.Conn) ([]string, error) {
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND " +
		"table_type = 'BASE TABLE'"
	if u.Kind == KindPostgres {
		query = "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384"
	}
	text, err := textOf(ctx, conn, query)
	return slices.Sorted(strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n")), err
}

// textOf returns the rows of a query, a line each.
func textOf(ctx context.Context, conn *sql.Conn, query string) (string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var b strings.Builder
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		for i, v := range values {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(v.String)
		}
		b.WriteByte('\n')
	}
	return b.String(), rows.Err()
}

// postgresSchema reads what the catalogs have of the database itself, and its statistics: plans
// depend on these, and autovacuum changes them now and then.
var postgresSchema = []string{strings.Join([]string{
	"SELECT md5(string_agg(concat(oid, relname, relnamespace, relowner, relkind, relpages, reltuples, relchecks, " +
		"relrowsecurity, relforcerowsecurity, relreplident, relacl, reloptions), ',' ORDER BY oid)) FROM pg_class " +
		"WHERE oid >= 16384 AND relkind <> 't'",
	"SELECT md5(string_agg(t::text, ',' ORDER BY attrelid, attnum)) FROM pg_attribute t WHERE attrelid >= 16384",
	"SELECT md5(string_agg(t::text, ',' ORDER BY indexrelid)) FROM pg_index t WHERE indexrelid >= 16384",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_proc t WHERE oid >= 16384",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_constraint t WHERE oid >= 16384",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_trigger t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_rewrite t WHERE oid >= 16384",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_attrdef t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_policy t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_namespace t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_extension t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_default_acl t",
	"SELECT md5(string_agg(t::text, ',' ORDER BY oid)) FROM pg_operator t WHERE oid >= 16384",
	"SELECT md5(string_agg(concat(starelid, staattnum, stanullfrac, stadistinct), ',' ORDER BY starelid, staattnum)) " +
		"FROM pg_statistic WHERE starelid >= 16384",
	"SELECT concat(datdba, datconnlimit, datallowconn, datacl) FROM pg_database WHERE datname = current_database()",
	"SELECT string_agg(t::text, ',') FROM pg_db_role_setting t JOIN pg_database d ON d.oid = setdatabase " +
		"WHERE datname = current_database()",
}, " UNION ALL ")}

// mysqlSchema reads what information_schema has of the database, and the rights on it.
var mysqlSchema = []string{
	"SELECT default_character_set_name, default_collation_name FROM information_schema.schemata WHERE " +
		"schema_name = DATABASE()",
	"SELECT table_name, table_type, engine, row_format, table_collation, create_options, table_comment FROM " +
		"information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name",
	"SELECT table_name, ordinal_position, column_name, column_default, is_nullable, column_type, collation_name, " +
		"extra, generation_expression FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1, 2",
	"SELECT table_name, index_name, seq_in_index, column_name, non_unique, sub_part, collation FROM " +
		"information_schema.statistics WHERE table_schema = DATABASE() ORDER BY 1, 2, 3",
	"SELECT table_name, view_definition, security_type, definer FROM information_schema.views WHERE " +
		"table_schema = DATABASE() ORDER BY 1",
	"SELECT trigger_name, event_object_table FROM information_schema.triggers WHERE trigger_schema = DATABASE() " +
		"ORDER BY 1",
	"SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE() ORDER BY 1",
	"SELECT event_name FROM information_schema.events WHERE event_schema = DATABASE() ORDER BY 1",
	"SELECT constraint_name FROM information_schema.table_constraints WHERE table_schema = DATABASE() ORDER BY 1",
	"SELECT host, db, user FROM mysql.db WHERE db = DATABASE() ORDER BY 1, 2, 3",
	"SELECT host, db, user, table_name, table_priv FROM mysql.tables_priv WHERE db = DATABASE() ORDER BY 1, 2, 3, 4",
	"SELECT host, user, table_name, column_name FROM mysql.columns_priv WHERE db = DATABASE() ORDER BY 1, 2, 3, 4",
}
