package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// beside are the files that SQLite keeps beside a database in WAL mode. nil: there is no such file.
type beside [2]os.FileInfo

var suffixes = [2]string{"-wal", "-shm"}

func besideOf(path string) (b beside) {
	for i, suffix := range suffixes {
		if info, err := os.Stat(path + suffix); err == nil {
			b[i] = info
		}
	}
	return b
}

// same reports whether two files are one, or both are missing.
func same(a, b os.FileInfo) bool {
	return a == nil && b == nil || a != nil && b != nil && os.SameFile(a, b)
}

// checkWAL fails if the -wal or the -shm was deleted while this process has it open, and if a file
// in WAL mode has several names. The last connection of all processes deletes both files, and the
// next one makes them anew, so checkWAL looks more closely whenever one of them has changed.
func (f *file) checkWAL() error {
	was, now := f.beside.Load(), besideOf(f.path)
	if was == nil {
		was = &beside{}
	} else if same(was[0], now[0]) && same(was[1], now[1]) {
		return nil
	}
	for i, info := range was {
		if path := f.path + suffixes[i]; info != nil && !same(info, now[i]) && deleted(path, info) {
			return replaced(path)
		}
	}
	if now[0] != nil {
		if err := named(f.path); err != nil {
			return err
		}
	}
	f.beside.Store(&now)
	return nil
}

// deleted reports whether a file was deleted while this process has it open; false: it is not open,
// or the system does not show that. Other processes make a new one: in WAL mode these files have
// the locks and the latest commits.
func deleted(path string, info os.FileInfo) bool {
	for range 10 { // the last connection deletes the -shm just before it closes it
		open, _ := os.ReadDir("/proc/self/fd") // on Linux
		if !slices.ContainsFunc(open, func(fd os.DirEntry) bool {
			link := filepath.Join("/proc/self/fd", fd.Name())
			name, _ := os.Readlink(link)
			has, err := os.Stat(link)
			return name == path+" (deleted)" && err == nil && os.SameFile(info, has)
		}) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// named refuses a file that processes may open under several names: a hard link, or a mount of the
// file alone. In WAL mode each name has a -wal and a -shm of its own, so that users of two names do
// not exclude each other. A process that opened the file before it had a second name goes on.
func named(path string) error {
	const advice = "in WAL mode each name has a -wal and locks of its own, so that processes do not exclude each other"
	info, err := os.Stat(path)
	if err != nil {
		return nil // the next check says why
	}
	if n := links(info); n > 1 {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("%s has %d names (hard links): %s: delete the others (find "+
			"-samefile shows them)", path, n, advice))
	}
	if mounted(path, info) {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("%s is mounted as a single file, so that it has another name "+
			"elsewhere: %s: mount its folder", path, advice))
	}
	return nil
}

// mounted reports whether a file is a mount by itself.
func mounted(path string, info os.FileInfo) bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo") // on Linux
	if errors.Is(err, os.ErrNotExist) {
		folder, err := os.Stat(filepath.Dir(path))
		return err == nil && device(info) != device(folder)
	}
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
	for mount := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(mount); len(fields) > 4 && fields[4] == escaped {
			return true
		}
	}
	return false
}
