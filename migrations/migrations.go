// Package migrations holds dblock's tables as goose SQL migrations, in independent sets, one folder
// per engine, embedded in the binary. Package migrate runs them; an application that runs goose
// itself takes them from FS.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/dblock-go/dblock/internal/tables"
)

// Engine is a kind of database that has migrations.
type Engine string

// The engines.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql" // MariaDB too
	SQLite   Engine = "sqlite"
)

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql fences/*/*.sql versions/*/*.sql
var files embed.FS

// FS returns the migrations of an engine as goose reads them: files at the root of the file system,
// of one set. Default: Locks. Keep them under a version table of their own
// (goose.WithTableName(set.Table())): two histories in one table silently skip each other's first
// version.
func FS(engine Engine, set ...Set) (fs.FS, error) {
	if len(set) > 1 {
		return nil, fmt.Errorf("dblock: FS of %d sets: a history has one; call it for each", len(set))
	}
	of := Locks
	if len(set) == 1 {
		of = set[0]
	}
	dir, err := of.folder(engine)
	if err != nil {
		return nil, err
	}
	under, err := fs.Sub(files, dir)
	if err != nil || of.schema == "" {
		return under, err
	}
	in, err := tables.New(of.schema)
	if err != nil {
		return nil, fmt.Errorf("dblock: Locks.In: %w", err)
	}
	if engine == MySQL {
		return tables.FS{FS: under, In: in, Place: in.MySQLMigration}, nil
	}
	return tables.FS{FS: under, In: in, Place: in.Postgres}, nil
}
