package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/migrations"
)

// timestamp is goose's format of a version that is a time.
const timestamp = "20060102150405"

// Copy writes the engine's migrations of some sets into dir, the folder of an application's own
// goose migrations, as 20260102150405_00001_dblock.sql and so on, and returns the files that it
// wrote. Default: Locks. They get timestamps from now on, a second apart, or later ones if dir has
// later files: goose refuses a version below one that it has run.
//
// A migration that was copied before is recognised by the name behind its timestamp. It stays
// unchanged and is not copied again, so that a newer build adds only new files. No file is ever
// overwritten. The files returned with an error were written.
func Copy(dir string, engine Engine, now time.Time, sets ...Set) ([]string, error) {
	var all []source
	for _, set := range orLocks(sets) {
		files, err := migrations.FS(engine, set)
		if err != nil {
			return nil, err
		}
		names, err := fs.Glob(files, "*.sql") // in order
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, source{files, name})
		}
	}
	last, copied, err := history(dir)
	if err != nil {
		return nil, fmt.Errorf("dblock: copy migrations: %w", err)
	}
	now = now.UTC().Truncate(time.Second)
	if !now.After(last) {
		now = last.Add(time.Second)
	}
	var written []string
	for _, s := range all {
		if copied[s.name] {
			continue
		}
		text, err := fs.ReadFile(s.files, s.name)
		if err != nil {
			return written, err
		}
		file := filepath.Join(dir, now.Format(timestamp)+"_"+s.name)
		if err := create(file, text); err != nil {
			return written, fmt.Errorf("dblock: copy migrations: %w", err)
		}
		written, copied[s.name] = append(written, file), true
		now = now.Add(time.Second)
	}
	return written, nil
}

// source is one of dblock's migrations. The names of migrations differ between sets.
type source struct {
	files fs.FS
	name  string
}

// history reads dir. It returns the time of its last migration, and the names behind its versions.
func history(dir string) (last time.Time, names map[string]bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return last, nil, err
	}
	names = make(map[string]bool)
	for _, entry := range entries {
		version, name, ok := strings.Cut(entry.Name(), "_")
		number, err := strconv.ParseInt(version, 10, 64)
		if !ok || err != nil {
			continue
		}
		names[name] = true
		at, err := time.Parse(timestamp, version)
		if err != nil && number > 1e13 {
			return last, nil,
				fmt.Errorf("%s: its version is neither a time nor below any: nothing can be put behind it",
					entry.Name())
		}
		if err == nil && at.After(last) {
			last = at
		}
	}
	return last, names, nil
}

// create writes a new file as a whole or not at all: half a migration would count as copied the
// next time.
func create(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}
