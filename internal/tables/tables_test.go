package tables_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrations"
)

var made = regexp.MustCompile(`(?i)CREATE\s+(?:OR\s+REPLACE\s+)?(?:SQL SECURITY INVOKER\s+)?(?:TABLE|VIEW|FUNCTION|PROCEDURE)\s+(?:IF NOT EXISTS\s+)?dblock_(\w+)`)

// Broken by a new table that no statement would find elsewhere.
func TestEverythingThatAMigrationMakesIsKnown(t *testing.T) {
	found := map[string]bool{"migrations": true} // goose's
	for _, engine := range []migrations.Engine{migrations.Postgres, migrations.MySQL, migrations.SQLite} {
		for _, set := range migrations.Sets {
			text, err := migrations.SQL(engine, false, set)
			require.NoError(t, err)
			for _, object := range made.FindAllStringSubmatch(text, -1) {
				found[object[1]] = true
				if !slices.Contains(tables.Objects, object[1]) {
					t.Errorf("%s: dblock_%s is not known", engine, object[1])
				}
			}
		}
	}
	for _, object := range tables.Objects {
		if !found[object] {
			t.Errorf("dblock_%s: nothing makes it", object)
		}
	}
}

func TestAPlaceStandsBeforeEachObjectAndNothingElse(t *testing.T) {
	in, err := tables.New("a$1")
	require.NoError(t, err)
	const unchanged = "FORCE INDEX (dblock_locks_session) 'dblock_locks' pg_notify('dblock_' || id) " +
		"@dblock_locks x.dblock_locks"
	for text, want := range map[string]string{
		"SELECT 1": "SELECT 1",
		"UPDATE dblock_locks l SET token = dblock_locks.token, at = dblock_now()": `UPDATE "a$1".dblock_locks l SET token = "a$1".dblock_locks.token, at = "a$1".dblock_now()`,
		"dblock_locks,dblock_guards": `"a$1".dblock_locks,"a$1".dblock_guards`,
		unchanged:                    unchanged,
	} {
		for range 2 { // what was seen before is the same
			assert.Equal(t, in.Postgres(text), want)
		}
	}
	assert.Equal(t, (*tables.In)(nil).MySQL("dblock_locks"), "dblock_locks", "without a place")
}

// What sqlc has made must read as the rule expects.
func TestNoStatementNamesAnObjectInAWayThatIsNotSeen(t *testing.T) {
	in, err := tables.New("locks")
	require.NoError(t, err)
	any := regexp.MustCompile(`dblock_(?:` + strings.Join(tables.Objects, "|") + `)\b`)
	files := 0
	for _, folder := range []string{"postgresdb", "mysqldb", "sqlitedb"} {
		err := filepath.WalkDir("../../gen/"+folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			if named, placed := len(any.FindAll(text, -1)), strings.Count(in.MySQL(string(text)),
				"`locks`.dblock_"); named != placed {
				t.Errorf("%s: %d of %d are seen", path, placed, named)
			}
			return err
		})
		require.NoError(t, err)
	}
	if files < 10 {
		t.Errorf("%d files", files)
	}
}

func TestANameThatWouldNeedAnEscapeIsRefused(t *testing.T) {
	for name, fine := range map[string]bool{
		"locks": true, "Locks_1": true, "a-b": true, "größe": true,
		"": false, "a.b": false, `a"b`: false, "a`b": false, "a'b": false, "a b": false, "1a": false, "a\x00": false,
		strings.Repeat("a", 64): false, strings.Repeat("ä", 32): false,
	} {
		if _, err := tables.New(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Broken by a client that looks again, and follows a connection to other tables.
func TestAPlaceIsWhatTheFirstLookHasFound(t *testing.T) {
	var p tables.Place
	missing := errors.New("missing")
	if err := p.Find(func() (*tables.In, error) { return nil, missing }); err != missing || p.In() != nil {
		t.Errorf("%v, %v", err, p.In())
	}
	slow := p.Find(func() (*tables.In, error) {
		require.NoError(t, p.Find(func() (*tables.In, error) { return tables.Found("first") })) // another goroutine
		return tables.Found("second")
	})
	require.NoError(t, slow)
	require.NoError(t, p.Find(func() (*tables.In, error) { return tables.Found("third") }))
	assert.Equal(t, p.In().Postgres("dblock_locks"), `"first".dblock_locks`)
	stated, err := tables.New("stated")
	require.NoError(t, err)
	p.State(stated)
	assert.Equal(t, p.In().String(), "stated")
	var nowhere tables.Place
	require.NoError(t, nowhere.Find(func() (*tables.In, error) { return tables.Found("") }))
	assert.Equal(t, nowhere.In().MySQL("dblock_locks"), "dblock_locks", "a server without a name for it")
	for name, fine := range map[string]bool{"my app": true, "a.b": true, `a"b`: false, "a`b": false, "a?": false} {
		if _, err := tables.Found(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
