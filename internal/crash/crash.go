package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// finished ends the name of a file, which begins with the id of the session. unfinished ends it
	// while Register makes the file.
	finished, unfinished = ".alive", ".new"
	// mostProbed limits the files that Sweep looks at. Of more files it chooses some at random.
	mostProbed = 64
	// worthless is the age at which a file that proves nothing, and that no process has locked, is
	// removed: it is of an earlier boot, or a copy.
	worthless = 24 * time.Hour
)

// Folder is the path of a folder that the processes of this host share for one database. "": there
// is none, and nothing is known.
type Folder string

// Setting says where the processes of this host meet. The zero value is the default.
type Setting struct {
	Off  bool   // nothing is known of any process
	Path string // the folder for all databases; "": that of the engine, or of the user
}

// Folder returns the folder for a database, and has the engine make its own folder if make is true.
// engine is driver.Setup.HostFolder. id identifies the database. Without a choice of the engine the
// folder for all databases is dblock-UID, in the folder for temporary files.
func (s Setting) Folder(engine func(make bool) (path string, shared bool), make bool, id func() string) Folder {
	if s.Off {
		return ""
	}
	chosen, shared := engine(make && s.Path == "")
	if !shared {
		return ""
	}
	if chosen != "" && s.Path == "" {
		return Folder(chosen)
	}
	path, database := s.Path, id()
	if database == "" {
		return ""
	}
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("dblock-%d", os.Getuid()))
	}
	return Folder(filepath.Join(path, database))
}

// Because says why a session was buried, by a process on a host.
func Because(host string) string { return "its process ended on " + host }

// Life is the file of a session of this process.
type Life struct {
	file *os.File
	path string
}

// Register makes the file of a session, and locks it. Register makes the folder if it is missing.
// errors.ErrUnsupported where no other process could prove anything by the file.
func (f Folder) Register(session string) (l *Life, err error) {
	if f == "" || !named(session) {
		return nil, errors.ErrUnsupported
	}
	for range 3 { // End may remove the folder as soon as it is made
		if err = os.MkdirAll(string(f), 0o700); err != nil {
			return nil, err
		}
		if l, err = f.register(session); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		_ = os.Remove(string(f)) // fails if it has files
	}
	return l, err
}

// register makes the file under another name: under its own it is locked and complete from the
// beginning.
func (f Folder) register(session string) (*Life, error) {
	path := f.path(session)
	made := filepath.Join(string(f), session+unfinished)
	file, err := open(made, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	text, err := evidence(file, session)
	if err == nil {
		err = lock(int(file.Fd()), exclusive)
	}
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = os.Remove(made)
		_ = file.Close()
		return nil, err
	}
	return &Life{file, path}, nil
}

// File returns the locked file. A child process that inherits it keeps the session alive. nil for
// no Life.
func (l *Life) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// End removes the file: the end of the process proves nothing any more. It does nothing for no
// Life.
func (l *Life) End() {
	if l == nil {
		return
	}
	folder := Folder(filepath.Dir(l.path))
	_ = os.Remove(l.path)
	_ = os.Remove(folder.swept())
	_ = os.Remove(string(folder)) // fails while the folder has other files
	_ = l.file.Close()
}

// Sweep calls ended with each session of the folder whose process has ended. If ended returns true,
// Sweep removes the file: the database knows of the end, or does not know the session. Otherwise
// the proof remains for the next Sweep, of any process. A session that is alive costs three system
// calls, and Sweep looks at no more than 64. Sweep does nothing if a process of this user has swept
// the folder within the last unless; 0: it sweeps in any case.
func (f Folder) Sweep(unless time.Duration, ended func(session string) (told bool)) {
	if f == "" || unless > 0 && !f.due(unless) {
		return
	}
	folder, err := os.Open(string(f))
	if err != nil {
		return
	}
	names, _ := folder.Readdirnames(-1)
	_ = folder.Close()
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasSuffix(name, finished) && !strings.HasSuffix(name, unfinished)
	})
	if len(names) > mostProbed {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:mostProbed]
	}
	for _, name := range names {
		f.probe(name, ended)
	}
}

// due reports whether no process of this user has swept the folder within the last d, and notes
// that this one does. Of many processes that wait, one sweeps, whichever of them is stopped.
func (f Folder) due(d time.Duration) bool {
	now, swept := time.Now(), f.swept()
	if info, err := os.Lstat(swept); err == nil && now.Sub(info.ModTime()).Abs() < d {
		return false
	}
	if os.Chtimes(swept, now, now) != nil {
		if file, err := open(swept, os.O_RDWR|os.O_CREATE); err == nil {
			_ = file.Close()
		}
	}
	return true
}

// swept is the path of a file that was written when a process of this user last swept the folder.
func (f Folder) swept() string {
	return filepath.Join(string(f), fmt.Sprintf("swept-%d", os.Geteuid()))
}

// probe is Sweep for one file. The proof stays locked until ended returns.
func (f Folder) probe(name string, ended func(session string) (told bool)) {
	path := filepath.Join(string(f), name)
	session, is := strings.CutSuffix(name, finished)
	if !is { // it is being made: a lock would be in its maker's way
		if old(os.Lstat(path)) {
			_ = os.Remove(path)
		}
		return
	}
	file := unlocked(path)
	if file == nil { // its process lives
		return
	}
	defer file.Close()
	var useless bool
	if named(session) && proves(file, session) {
		useless = ended(session)
	} else {
		useless = old(file.Stat())
	}
	if useless {
		_ = os.Remove(path)
	}
}

// old reports whether a file that proves nothing can be removed.
func old(is fs.FileInfo, err error) bool { return err == nil && time.Since(is.ModTime()) > worthless }

// proves reports whether a file that no process has locked is the one that its session made.
func proves(file *os.File, session string) bool {
	want, err := evidence(file, session)
	if err != nil {
		return false
	}
	text := make([]byte, len(want)+1)
	n, _ := file.ReadAt(text, 0)
	return string(text[:n]) == want
}

func (f Folder) path(session string) string { return filepath.Join(string(f), session+finished) }

// named reports whether the id of a session can name a file.
func named(session string) bool {
	return session != "" && strings.Trim(session, letters+"0123456789") == ""
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// format is the text of a file. The first line is the version of the format.
const format = "dblock 1\nsession %s\nboot %s\ndevice %d\ninode %d\n"
