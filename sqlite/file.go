package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dblock-go/dblock/driver"
)

// file is the database's file as it was when the engine first used it. The zero value is one that cannot be looked at: the
// database is in memory, or in a file system of the driver's own.
//
// In WAL mode SQLite does not notice that its file was deleted or replaced: whoever has it open goes on in what no name
// leads to any more, and everybody else locks in the new file.
type file struct {
	path string
	info os.FileInfo
}

func fileAt(path string) *file {
	info, err := os.Stat(path)
	if err != nil {
		return &file{}
	}
	return &file{path, info}
}

// check fails where the path leads to another file by now, or to none. It costs about a microsecond.
func (f *file) check() error {
	if f == nil || f.info == nil {
		return nil
	}
	info, err := os.Stat(f.path)
	if err == nil && os.SameFile(f.info, info) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return driver.Fail(driver.ErrConfig, fmt.Errorf("%w: %s was deleted, moved or replaced while this pool had it open, so that "+
		"other processes take their locks elsewhere: close the pool and open it again", driver.ErrReplaced, f.path))
}
