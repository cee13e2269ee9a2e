// Package migrations holds dblock's tables as goose SQL migrations, in independent sets, one folder
// per engine, embedded in the binary. Package migrate runs them; an application that runs goose
// itself takes them from FS.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/dblock-go/dblock/internal/driver"
)

// Version is the version of the locks' tables that this build of dblock brings.
const Version = driver.SchemaVersion

// Set is a set of tables with a history of its own. No set needs another: a database in which only
// fence.Check runs has Fences and nothing else.
type Set string

// The sets.
const (
	Locks    Set = "locks"    // dblock_locks and the other tables of a client
	Fences   Set = "fences"   // dblock_fences, of package fence
	Versions Set = "versions" // dblock_versions, of package optimistic
)

// Sets lists all sets.
var Sets = []Set{Locks, Fences, Versions}

// Table returns the name of the set's own goose version table.
func (s Set) Table() string {
	if s == Locks {
		return "dblock_migrations"
	}
	return "dblock_migrations_" + string(s)
}

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql fences/*/*.sql versions/*/*.sql
var files embed.FS

// FS returns the migrations of an engine, "postgres", "mysql" (MariaDB too) or "sqlite", as goose
// reads them: files at the root of the file system, of one set. Default: Locks. Keep them under a
// version table of their own (goose.WithTableName(set.Table())): two histories in one table
// silently skip each other's first version.
func FS(engine string, set ...Set) (fs.FS, error) {
	if len(set) > 1 {
		return nil, fmt.Errorf("dblock: FS of %d sets: a history has one; call it for each", len(set))
	}
	dir, err := "", error(nil)
	switch {
	case engine != "postgres" && engine != "mysql" && engine != "sqlite":
		err = fmt.Errorf("dblock: no migrations for engine %q: want postgres, mysql or sqlite", engine)
	case len(set) == 0 || set[0] == Locks:
		dir = engine
	case set[0] == Fences, set[0] == Versions:
		dir = string(set[0]) + "/" + engine
	default:
		err = fmt.Errorf("dblock: no migrations %q: want %s, %s or %s", set[0], Locks, Fences, Versions)
	}
	if err != nil {
		return nil, err
	}
	return fs.Sub(files, dir)
}
