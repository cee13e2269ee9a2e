package migrate

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrations"
)

// Each set is made and removed without the others.
func TestASetStandsAlone(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		for _, set := range []migrate.Set{migrate.Fences, migrate.Versions} {
			for range 2 {
				ok(t, migrate.Up(t.Context(), pool, db.Engine, set))
				complete(t, db, pool, set)
			}
			for _, other := range migrations.Sets {
				if other != set {
					states(t, db, pool, false, other)
					missing(t, pool, tables[other][0])
				}
			}
			ok(t, migrate.Down(t.Context(), pool, db.Engine, set))
			states(t, db, pool, false, set)
			if names := left(t, db, pool); len(names) > 0 {
				t.Errorf("Down left %v", names)
			}
		}
	})
}

func TestSetsSideBySide(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		missing(t, pool, "dblock_fences") // the default is the locks alone
		ok(t, migrate.Up(t.Context(), pool, db.Engine, migrate.Fences, migrate.Versions))
		complete(t, db, pool, migrations.Sets...)
		list, err := migrate.Status(t.Context(), pool, db.Engine, migrate.Fences, migrate.Versions)
		if err != nil || len(list) != 2 || list[0].Set != migrate.Fences || list[1].Set != migrate.Versions {
			t.Errorf("%+v, %v", list, err)
		}
		ok(t, migrate.Down(t.Context(), pool, db.Engine, migrate.Fences))
		missing(t, pool, "dblock_fences")
		complete(t, db, pool, migrate.Locks, migrate.Versions)
	})
}

// Another history made the tables: Up says so where it cannot adopt them.
func TestASetOfAnotherHistory(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		for _, set := range []migrate.Set{migrate.Fences, migrate.Versions} {
			files, err := migrations.FS(db.Engine, set)
			ok(t, err)
			theirs, err := goose.NewProvider(gooseDialect(db), pool, files, goose.WithTableName("their_"+set.String()))
			ok(t, err)
			_, err = theirs.Up(t.Context())
			ok(t, err)
			if err := migrate.Up(t.Context(), pool, db.Engine, set); (err == nil) != (db.Engine == migrate.MySQL) {
				t.Error(err)
			} else if err != nil && !strings.Contains(err.Error(), "not by "+set.Table()) {
				t.Error(err)
			}
		}
	})
}

func TestSetsAreCopiedOnceEach(t *testing.T) {
	dir := t.TempDir()
	_, err := migrate.Copy(dir, migrate.Postgres, noon)
	ok(t, err)
	files, err := migrate.Copy(dir, migrate.Postgres, noon, migrate.Fences, migrate.Locks, migrate.Versions,
		migrate.Fences)
	ok(t, err)
	behind := func(n int) string {
		return noon.Add(time.Duration(versions(migrate.Locks)+n) * time.Second).Format("20060102150405")
	}
	if len(files) != 2 || filepath.Base(files[0]) != behind(0)+"_00001_dblock_fences.sql" ||
		filepath.Base(files[1]) != behind(1)+"_00001_dblock_versions.sql" {
		t.Error(files)
	}
	if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "CREATE TABLE dblock_fences") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAnUnknownSetIsRefusedBeforeAnythingIsDone(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindSQLite)
	pool := db.SQL(t)
	for _, set := range []migrate.Set{{}, migrate.Locks.In("app"), migrate.Fences.In("app")} {
		if err := migrate.Up(t.Context(), pool, db.Engine, migrate.Locks, set); err == nil ||
			!strings.Contains(err.Error(), set.String()) {
			t.Error(err)
		}
		states(t, db, pool, false)
		if files, err := migrate.Copy(t.TempDir(), db.Engine, noon, migrate.Locks, set); err == nil || len(files) > 0 {
			t.Error(files, err)
		}
	}
	for _, sets := range [][]migrations.Set{
		{{}}, {migrations.Locks.In(`a"b`)}, {migrations.Versions.In("app")}, {migrations.Fences, migrations.Versions},
	} {
		assert.Error(t, assert.ErrOf(migrations.FS(migrations.Postgres, sets...)), "FS of", sets)
	}
}

func TestFilesNameTheirPlace(t *testing.T) {
	for engine, want := range map[migrate.Engine]string{
		migrate.Postgres: `CREATE TABLE "app".dblock_locks`, migrate.MySQL: "CREATE TABLE IF NOT EXISTS `app`.dblock_locks",
	} {
		text, err := migrations.SQL(engine, false, migrate.Locks.In("app"))
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v", engine, err)
		}
		files, err := migrate.Copy(t.TempDir(), engine, noon, migrate.Locks.In("app"))
		ok(t, err)
		if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", engine, files[0], err)
		}
	}
}

// Two sets with a file of one name could not be copied into one history.
func TestNoTwoSetsHaveAFileOfOneName(t *testing.T) {
	for _, engine := range []migrate.Engine{migrate.Postgres, migrate.MySQL, migrate.SQLite} {
		seen := make(map[string]migrate.Set)
		for _, set := range migrations.Sets {
			files, err := migrations.FS(engine, set)
			ok(t, err)
			names, err := fs.Glob(files, "*.sql")
			ok(t, err)
			if len(names) != versions(set) {
				t.Errorf("%s: %d migrations of the %s", engine, len(names), set)
			}
			for _, name := range names {
				if other, there := seen[name]; there {
					t.Errorf("%s: %s is in %s and %s", engine, name, set, other)
				}
				seen[name] = set
			}
		}
	}
}

func missing(t *testing.T, pool *sql.DB, table string) {
	t.Helper()
	if err := pool.QueryRowContext(t.Context(), "SELECT 1 FROM "+table).Scan(new(int)); err == nil ||
		errors.Is(err, sql.ErrNoRows) {
		t.Errorf("%s is there", table)
	}
}
