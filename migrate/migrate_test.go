package migrate_test

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// later are the versions of a made-up build. SQLite's tables go the same way, and its driver is in
// another module.
var later = fstest.MapFS{
	"00001_one.sql": step("CREATE TABLE dblock_schema (version int, usable_from int);\nINSERT INTO dblock_schema "+
		"(version, usable_from) VALUES (1, 1);", "DROP TABLE dblock_schema;"),
	"00002_two.sql": step("ALTER TABLE dblock_schema ADD COLUMN two int;\nUPDATE dblock_schema SET version = 2;",
		"ALTER TABLE dblock_schema DROP COLUMN two;\nUPDATE dblock_schema SET version = 1;"),
	"00003_three.sql": step("UPDATE dblock_schema SET version = 3, usable_from = 3;",
		"UPDATE dblock_schema SET version = 2, usable_from = 1;"),
}

func step(up, down string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + up + "\n-- +goose Down\n" + down + "\n"), Mode: fs.ModePerm}
}

func TestTablesGoBackToAnOlderVersionAndForthAgain(t *testing.T) {
	for _, kind := range []string{dbtest.KindPostgres, dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			pool := db.SQL(t)
			is := func(err error, version, usable int) {
				t.Helper()
				require.NoError(t, err)
				var there, from int
				if err := pool.QueryRowContext(t.Context(),
					"SELECT version, usable_from FROM dblock_schema").Scan(&there, &from); err != nil ||
					there != version || from != usable {
					t.Errorf("version %d, usable from %d, %v: want %d, %d", there, from, err, version, usable)
				}
			}
			up := func() error { return migrate.UpWith(t.Context(), pool, db.Engine, later) }
			downTo := func(version int64) error {
				return migrate.DownToWith(t.Context(), pool, db.Engine, later, version)
			}
			is(up(), 3, 3)
			is(downTo(3), 3, 3)
			is(downTo(2), 2, 1)
			is(downTo(3), 2, 1) // what is below is left as it is
			is(up(), 3, 3)
			is(downTo(1), 1, 1)
			is(up(), 3, 3)
		})
	}
}
