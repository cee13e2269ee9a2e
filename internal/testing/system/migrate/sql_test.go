package migrate

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	dblockdriver "github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrations"
)

// Broken by annotations of goose that are left in, and by one direction that is taken for the
// other.
func TestPlainSQLMakesTheTablesAndRemovesThem(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		apply := pool
		if db.Engine == migrate.MySQL {
			config, err := mysql.ParseDSN(db.DSN)
			ok(t, err)
			config.MultiStatements = true
			apply, err = sql.Open("mysql", config.FormatDSN())
			ok(t, err)
			defer apply.Close()
		}
		for _, down := range []bool{false, true} {
			text, err := migrations.SQL(db.Engine, down, migrations.Sets...)
			ok(t, err)
			if strings.Contains(text, "goose") {
				t.Errorf("down %v: goose is in it", down)
			}
			_, err = apply.ExecContext(t.Context(), text)
			ok(t, err)
			if there := slices.Sorted(slices.Values(left(t, db, pool))); (len(there) == 0) != down {
				t.Errorf("down %v: there are %v", down, there)
			}
			if !down {
				var version int64
				ok(t, pool.QueryRowContext(t.Context(), "SELECT version FROM dblock_schema").Scan(&version))
				assert.Equal(t, version, dblockdriver.SchemaVersion, "version")
				for _, set := range migrations.Sets {
					for _, table := range tables[set] {
						if !slices.Contains(left(t, db, pool), table) {
							t.Errorf("%s is not there", table)
						}
					}
				}
			}
		}
		assert.Error(t, assert.ErrOf(migrations.SQL("oracle", false)), "SQL of an engine that is none")
	})
}
