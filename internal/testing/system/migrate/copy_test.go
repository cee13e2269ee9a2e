package migrate

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	dblockdriver "github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)

// An application copies the migrations into its own goose history.
func TestCopiedMigrationsRunInTheApplicationsHistory(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		dir := t.TempDir()
		theirs := "-- +goose Up\nCREATE TABLE theirs (n int);\n-- +goose Down\nDROP TABLE theirs;\n"
		ok(t, os.WriteFile(filepath.Join(dir, "20250101000000_theirs.sql"), []byte(theirs), 0o600))
		files, err := migrate.Copy(dir, db.Engine, noon)
		ok(t, err)
		if len(files) == 0 || files[0] != filepath.Join(dir, "20260102120000_00001_dblock.sql") {
			t.Fatal(files)
		}
		pool := db.SQL(t)
		p, err := goose.NewProvider(gooseDialect(db), pool, os.DirFS(dir))
		ok(t, err)
		_, err = p.Up(t.Context())
		ok(t, err)
		var version int
		scan(t, pool, &version, "SELECT version FROM dblock_schema")
		assert.Equal(t, version, dblockdriver.SchemaVersion, "the tables are at version")
		states(t, db, pool, false) // not dblock's history

		// Up beside that history: on MySQL, where each statement may run twice, it adopts the
		// tables. Elsewhere its error explains them.
		if err := migrate.Up(t.Context(), pool, db.Engine); (err == nil) != (db.Engine == migrate.MySQL) {
			t.Error(err)
		} else if err != nil && !strings.Contains(err.Error(), "go on with the history that made them") {
			t.Error(err)
		}
	})
}

// The application numbers its migrations. Broken by a version that is higher than its next number.
func TestCopiedMigrationsTakeTheNextNumbers(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindSQLite)
	pool, dir := db.SQL(t), t.TempDir()
	add := func(name, table string) {
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte("-- +goose Up\nCREATE TABLE "+table+" (n int);\n"), 0o600))
	}
	run := func() {
		t.Helper()
		p, err := goose.NewProvider(gooseDialect(db), pool, os.DirFS(dir))
		ok(t, err)
		_, err = p.Up(t.Context())
		ok(t, err)
	}
	add("00001_init.sql", "init")
	add("00002_users.sql", "users")
	run()
	ok(t, os.WriteFile(filepath.Join(dir, "20240101_notes.txt"), nil, 0o600)) // goose does not read it
	files, err := migrate.Copy(dir, db.Engine, noon)
	ok(t, err)
	assert.Equal(t, files[0], filepath.Join(dir, "00003_00001_dblock.sql"))
	run()
	add("00004_orders.sql", "orders")
	run()
	for _, table := range []string{"dblock_locks", "orders"} {
		var n int
		scan(t, pool, &n, "SELECT count(*) FROM "+table)
	}
	files, err = migrate.Copy(dir, db.Engine, noon, migrate.Locks, migrate.Fences)
	ok(t, err)
	if len(files) != 1 || files[0] != filepath.Join(dir, "00005_00001_dblock_fences.sql") {
		t.Error(files)
	}
}

func TestCopyAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := migrate.Copy(dir, migrate.Postgres, noon)
	ok(t, err)
	ok(t, os.WriteFile(first[0], []byte("-- edited"), 0o600))
	again, err := migrate.Copy(dir, migrate.Postgres, noon.Add(time.Hour))
	ok(t, err)
	assert.Equal(t, len(again), 0, "copied twice", again)
	if text, err := os.ReadFile(first[0]); err != nil || string(text) != "-- edited" {
		t.Errorf("%q, %v", text, err)
	}
}

// A migration below one that has run would be refused by goose.
func TestCopiesAreBehindEverythingThatIsThere(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"00007_old_style.sql", "20300101000000_from_a_fast_clock.sql", "README.md",
		"notes_1.txt"} {
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte("-- +goose Up\n"), 0o600))
	}
	files, err := migrate.Copy(dir, migrate.SQLite, noon)
	ok(t, err)
	if filepath.Base(files[0]) != "20300101000001_00001_dblock.sql" || !slices.IsSorted(files) {
		t.Error(files)
	}
}

func TestCopyRefuses(t *testing.T) {
	assert.ErrorIs(t, assert.ErrOf(migrate.Copy(filepath.Join(t.TempDir(), "nowhere"), migrate.SQLite, noon)),
		fs.ErrNotExist)
	assert.Error(t, assert.ErrOf(migrate.Copy(t.TempDir(), "oracle", noon)), "an unknown engine is taken")
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "99999999999999_last.sql"), nil, 0o600))
	if files, err := migrate.Copy(dir, migrate.SQLite, noon); err == nil || len(files) > 0 {
		t.Error(files, err)
	}
}
