package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
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
	// mostProbed limits the files that Ended looks at. Of more files it chooses some at random.
	mostProbed = 64
	// worthless is the age at which a file that no process has locked is removed if it proves
	// nothing (it is of an earlier boot, or a copy), or no database knows its session.
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

// Folder returns the folder for a database; "" where nothing is known. engine is
// driver.Setup.HostFolder, and create its argument. id identifies the database. Without a choice of
// the engine the folder for all databases is dblock-UID, in the folder for temporary files. If that
// belongs to somebody else, nothing is known.
func (s Setting) Folder(engine func(create bool) (path string, shared bool), create bool, id func() string) Folder {
	if s.Off {
		return ""
	}
	chosen, shared := engine(create && s.Path == "")
	if !shared {
		return ""
	}
	if chosen != "" && s.Path == "" {
		return Folder(chosen)
	}
	path, database := s.Path, id()
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("dblock-%d", os.Geteuid()))
		if is, err := os.Lstat(path); err == nil && !(is.IsDir() && mine(is)) {
			return ""
		}
	}
	if database == "" {
		return ""
	}
	return Folder(filepath.Join(path, database))
}

// Because says why a session was buried, by a process on a host.
func Because(host string) string { return "its process ended on " + host }

// Life is the file of a session of this process.
type Life struct {
	file    *os.File
	path    string
	touched time.Time
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
	return &Life{file, path, time.Now()}, nil
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
	_ = os.Remove(folder.mark())
	_ = os.Remove(string(folder)) // fails while the folder has other files
	_ = l.file.Close()
}

// Touch notes once an hour that the process lives, by the time of the file: it is not old, not for
// those that clear folders for temporary files either. One goroutine at a time calls it.
func (l *Life) Touch() {
	if l != nil && time.Since(l.touched) > time.Hour {
		l.touched = time.Now()
		_ = os.Chtimes(l.path, l.touched, l.touched)
	}
}

// Proof proves that the process of a session has ended. Others may have it, too.
type Proof struct {
	Session string
	file    *os.File
	path    string
}

// Remove takes the proof from all: when the database knows of the end.
func (p Proof) Remove() { _ = os.Remove(p.path) }

// Old reports whether the process has not lived for a day. Then no database waits for the proof.
func (p Proof) Old() bool { return old(p.file.Stat()) }

// Ended yields a proof for each session of the folder whose process has ended. A session that is
// alive costs three system calls, and Ended looks at no more than 64. It yields nothing if a
// process of this user has looked at all within the last unless; 0: it looks in any case.
func (f Folder) Ended(unless time.Duration) iter.Seq[Proof] {
	return func(yield func(p Proof) bool) {
		is, err := os.Lstat(string(f))
		if err != nil || !is.IsDir() || unless > 0 && f.looked(unless) {
			return
		}
		for _, name := range f.names() {
			if !f.probe(name, yield) {
				return
			}
		}
		if unless > 0 {
			f.note()
		}
	}
}

// names returns the names of the files of sessions: some of them, where there are too many.
func (f Folder) names() []string {
	folder, err := os.Open(string(f))
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool {
		session, is := strings.CutSuffix(name, finished)
		if !is {
			session, is = strings.CutSuffix(name, unfinished)
		}
		return !is || !named(session)
	})
	if len(names) > mostProbed {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:mostProbed]
	}
	return names
}

// probe is Ended for one file, which stays locked while yield runs.
func (f Folder) probe(name string, yield func(p Proof) bool) (more bool) {
	path := filepath.Join(string(f), name)
	session, is := strings.CutSuffix(name, finished)
	if !is { // it is being made: a lock would be in the way of its maker
		if old(os.Lstat(path)) {
			_ = os.Remove(path)
		}
		return true
	}
	file := unlocked(path)
	if file == nil { // its process lives
		return true
	}
	defer file.Close()
	p := Proof{session, file, path}
	if proves(file, session) {
		return yield(p)
	}
	if p.Old() {
		p.Remove()
	}
	return true
}

// old reports whether a file of this user has not been touched for so long that it can be removed.
func old(is fs.FileInfo, err error) bool {
	return err == nil && mine(is) && time.Since(is.ModTime()) > worthless
}

// looked reports whether a process of this user has looked at the folder within the last d. Of many
// processes that wait, one looks, whichever of them is stopped.
func (f Folder) looked(d time.Duration) bool {
	is, err := os.Lstat(f.mark())
	return err == nil && mine(is) && time.Since(is.ModTime()).Abs() < d
}

// note notes that this process has looked at the folder.
func (f Folder) note() {
	if file, err := open(f.mark(), os.O_WRONLY|os.O_CREATE); err == nil {
		_, _ = file.WriteAt([]byte{'\n'}, 0)
		_ = file.Close()
	}
}

// mark is the path of a file that was written when a process of this user last looked at the
// folder.
func (f Folder) mark() string { return filepath.Join(string(f), fmt.Sprintf("swept-%d", os.Geteuid())) }

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
