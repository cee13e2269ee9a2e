package migrate

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
)

// A later version may add a column of any name to any table: here every table gets the columns of
// all the others. A statement of this build that names a column without its table would be
// ambiguous.
func TestStatementsOfThisBuildKnowTheirColumnsAmongThoseOfLaterOnes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		columns := columnsOf(t, db, pool)
		var all []string
		for _, names := range columns {
			all = append(all, names...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		for table, own := range columns {
			for _, name := range all {
				if !slices.Contains(own, name) {
					_, err := pool.ExecContext(t.Context(), "ALTER TABLE "+table+" ADD COLUMN "+name+" bigint")
					ok(t, err)
				}
			}
		}
		statements := generated(t, db.Engine)
		for _, view := range []string{"dblock_who", "dblock_queue"} {
			statements[view] = "SELECT 1 FROM " + view
		}
		if len(columns) < 10 || len(statements) < 50 {
			t.Fatalf("%d tables, %d statements", len(columns), len(statements))
		}
		for _, name := range slices.Sorted(maps.Keys(statements)) {
			statement, err := pool.PrepareContext(t.Context(), statements[name])
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			_ = statement.Close()
		}
	})
}

// columnsOf returns the columns of each table of the locks.
func columnsOf(t *testing.T, db dbtest.Database, pool *sql.DB) map[string][]string {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), map[migrate.Engine]string{
		migrate.Postgres: `SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relkind = 'r' AND c.relname LIKE 'dblock%' AND a.attnum > 0`,
		migrate.MySQL: `SELECT c.table_name, c.column_name FROM information_schema.columns c
			JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' AND c.table_name LIKE 'dblock%'`,
		migrate.SQLite: `SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c
			WHERE m.type = 'table' AND m.name LIKE 'dblock%'`,
	}[db.Engine])
	ok(t, err)
	defer rows.Close()
	columns := make(map[string][]string)
	for rows.Next() {
		var table, column string
		ok(t, rows.Scan(&table, &column))
		if table != migrate.Locks.Table() {
			columns[table] = append(columns[table], column)
		}
	}
	ok(t, rows.Err())
	return columns
}

// generated returns the statements that sqlc has made for an engine, by the names of their
// constants.
func generated(t *testing.T, engine migrate.Engine) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../../../gen/" + string(engine) + "db/*.sql.go")
	ok(t, err)
	statements := make(map[string]string)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		ok(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 {
				return true
			}
			if text, is := spec.Values[0].(*ast.BasicLit); is && text.Kind == token.STRING {
				statement, err := strconv.Unquote(text.Value)
				ok(t, err)
				statements[spec.Names[0].Name] = strings.ReplaceAll(statement, "/*SLICE:names*/?", "?")
			}
			return true
		})
	}
	return statements
}
