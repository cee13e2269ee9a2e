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
// goose migrations, and returns the files that it wrote. Default: Locks. goose refuses a version
// below one that it has run, so Copy continues the folder's own way of numbering. If the folder's
// highest version is a number, such as 00002_users.sql, the files get the next numbers with as many
// digits: 00003_00001_dblock.sql. Otherwise they get timestamps from now on, a second apart, or
// later ones if dir has later files: 20060102150405_00001_dblock.sql.
//
// A migration that was copied before is recognised by the name behind its version. It stays
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
	there, err := historyOf(dir)
	if err != nil {
		return nil, fmt.Errorf("dblock: copy migrations: %w", err)
	}
	next, err := there.versions(now)
	if err != nil {
		return nil, fmt.Errorf("dblock: copy migrations: %w", err)
	}
	var written []string
	for _, s := range all {
		if there.names[s.name] {
			continue
		}
		text, err := fs.ReadFile(s.files, s.name)
		if err != nil {
			return written, err
		}
		file := filepath.Join(dir, next()+"_"+s.name)
		if err := create(file, text); err != nil {
			return written, fmt.Errorf("dblock: copy migrations: %w", err)
		}
		written, there.names[s.name] = append(written, file), true
	}
	return written, nil
}

// source is one of dblock's migrations. The names of migrations differ between sets.
type source struct {
	files fs.FS
	name  string
}

// history has the migrations of a folder.
type history struct {
	last  int64           // the highest version; 0: there is none
	text  string          // the highest version, as its file has it
	names map[string]bool // the names behind the versions
}

// historyOf reads dir as goose does.
func historyOf(dir string) (history, error) {
	h := history{names: make(map[string]bool)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return h, err
	}
	for _, entry := range entries {
		version, name, ok := strings.Cut(entry.Name(), "_")
		number, err := strconv.ParseInt(version, 10, 64)
		if kind := filepath.Ext(name); !ok || err != nil || kind != ".sql" && kind != ".go" {
			continue
		}
		h.names[name] = true
		if number > h.last {
			h.last, h.text = number, version
		}
	}
	return h, nil
}

// versions returns a function that counts on from the highest version.
func (h history) versions(now time.Time) (next func() string, err error) {
	at, err := time.Parse(timestamp, h.text)
	switch {
	case err == nil, h.last == 0:
	case h.last > 1e13:
		return nil, fmt.Errorf("%s: this version is neither a time nor below any: nothing can be put behind it", h.text)
	default:
		return func() string {
			h.last++
			return fmt.Sprintf("%0*d", len(h.text), h.last)
		}, nil
	}
	now = now.UTC().Truncate(time.Second)
	if !now.After(at) {
		now = at.Add(time.Second)
	}
	return func() string {
		version := now.Format(timestamp)
		now = now.Add(time.Second)
		return version
	}, nil
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
