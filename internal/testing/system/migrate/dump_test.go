package migrate

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
)

// Broken by a table without a primary key: a publication FOR ALL TABLES refuses to change its rows.
func TestEveryTableHasAPrimaryKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		tables, keyless := 0, ""
		scan(t, pool, &tables, map[migrate.Engine]string{
			migrate.Postgres: `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`,
			migrate.MySQL:    `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'`,
			migrate.SQLite:   `SELECT count(*) FROM sqlite_schema WHERE type = 'table'`,
		}[db.Engine])
		if tables < 10 {
			t.Fatalf("%d tables", tables)
		}
		scan(t, pool, &keyless, map[migrate.Engine]string{
			migrate.Postgres: `SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class c WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
				AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`,
			migrate.MySQL: `SELECT COALESCE(GROUP_CONCAT(t.table_name), '') FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE'
				AND NOT EXISTS (SELECT 1 FROM information_schema.table_constraints k WHERE k.table_schema = t.table_schema AND k.table_name = t.table_name AND k.constraint_type = 'PRIMARY KEY')`,
			migrate.SQLite: `SELECT coalesce(group_concat(name), '') FROM sqlite_schema s WHERE type = 'table' AND name NOT LIKE 'sqlite%'
				AND NOT EXISTS (SELECT 1 FROM pragma_table_info(s.name) c WHERE c.pk > 0)`,
		}[db.Engine])
		assert.Equal(t, keyless, "", "without a primary key")
		if db.Engine == migrate.Postgres {
			_, err := pool.ExecContext(t.Context(), "CREATE PUBLICATION everything FOR ALL TABLES")
			ok(t, err)
			_, err = pool.ExecContext(t.Context(), "UPDATE dblock_schema SET version = version")
			ok(t, err)
		}
	})
}

// Broken by a generated column: MariaDB's mysqldump writes its values into a dump of MySQL, which
// MySQL refuses (3105).
func TestNoColumnIsGenerated(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		if db.Engine != migrate.MySQL {
			return
		}
		pool := db.SQL(t)
		var generated, ids int
		scan(t, pool, &generated, "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() "+
			"AND generation_expression <> ''")
		assert.Equal(t, generated, 0, "columns are generated")
		_, err := pool.ExecContext(t.Context(),
			"INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata) "+
				"VALUES ('n', '', '', 1, 1, '')")
		ok(t, err)
		scan(t, pool, &ids, "SELECT COUNT(*) FROM dblock_locks l JOIN dblock_schema s ON s.database_id = l.database_id")
		assert.Equal(t, ids, 1, "a name has another database's id")
	})
}
