// Package migrations holds dblock's tables as goose SQL migrations, one folder per engine, embedded in the binary.
// Package migrate runs them; an application that runs goose itself takes them from FS.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/dblock-go/dblock/driver"
)

// Version is the version of the tables that this build of dblock works with.
const Version = driver.SchemaVersion

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql
var files embed.FS

// FS returns the migrations of an engine, "postgres", "mysql" (MariaDB too) or "sqlite", as goose reads them: files
// at the root of the file system. Keep them under a version table of their own (goose.WithTableName): two histories
// in one table silently skip each other's first version.
func FS(engine string) (fs.FS, error) {
	dir, err := fs.Sub(files, engine)
	if err == nil {
		_, err = fs.Stat(dir, ".")
	}
	if err != nil {
		return nil, fmt.Errorf("dblock: no migrations for engine %q: want postgres, mysql or sqlite", engine)
	}
	return dir, nil
}
