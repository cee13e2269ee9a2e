//go:build linux || darwin || freebsd

package crash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// registering has the test program make the file of a session in a folder, say so, and live on.
const registering = "DBLOCK_TEST_REGISTER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(registering); folder != "" {
		if _, err := Folder(folder).Register("S"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("registered")
		select {}
	}
	os.Exit(m.Run())
}

// dead lists the sessions that a sweep finds dead. It leaves their files.
func (f Folder) dead() string {
	var sessions []string
	for p := range f.Ended(0) {
		sessions = append(sessions, p.Session)
	}
	return strings.Join(sessions, " ")
}

func register(t testing.TB, f Folder, session string) *Life {
	t.Helper()
	l, err := f.Register(session)
	require.NoError(t, err)
	t.Cleanup(l.End)
	return l
}

// crash closes the file, as the kernel does at the end of a process.
func (l *Life) crash() { _ = l.file.Close() }

// rewrite replaces a file by one with another content, as a restore does.
func rewrite(t testing.TB, path string, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".copy", []byte(change(string(text))), 0o600))
	require.NoError(t, os.Rename(path+".copy", path))
}

// place has the content of a file replaced, in place.
func place(t testing.TB, path string, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(change(string(text))), 0o600))
}

func same(text string) string { return text }

func TestAProcessIsDeadOnceItHasEndedAndNotBefore(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "made", "by", "register"))
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), registering+"="+string(f))
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer child.Process.Kill()
	said := make([]byte, len("registered"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "registered" {
		t.Fatalf("%q, %v", said, err)
	}
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	assert.Equal(t, f.dead(), "", "of a process that is stopped")
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	assert.Equal(t, f.dead(), "S")
}

func TestADescendantWithTheDescriptorKeepsTheSessionAlive(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	child := exec.Command("cat") // ends with its input
	child.ExtraFiles = []*os.File{l.File()}
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	l.crash()
	assert.Equal(t, f.dead(), "", "while a child has the descriptor")
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
	assert.Equal(t, f.dead(), "S", "without it")
}

func TestAProgramThatIsStartedHasNoDescriptor(t *testing.T) {
	l := register(t, Folder(t.TempDir()), "S")
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, l.file.Fd(), syscall.F_GETFD, 0)
	if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v", flags, errno)
	}
}

func TestAFileNamesItself(t *testing.T) {
	l := register(t, Folder(t.TempDir()), "S")
	var is syscall.Stat_t
	require.NoError(t, syscall.Stat(l.path, &is))
	text, err := os.ReadFile(l.path)
	require.NoError(t, err)
	_, itself, _ := strings.Cut(string(text), "\ndevice ")
	assert.Equal(t, itself, fmt.Sprintf("%d\ninode %d\n", is.Dev, is.Ino))
}

// Each of these files could be locked, and none is a proof.
func TestOnlyTheFileThatTheSessionMadeOnThisBootIsAProof(t *testing.T) {
	id, err := boot()
	require.NoError(t, err)
	for what, change := range map[string]func(t *testing.T, f Folder, l *Life){
		"copied and put back": func(t *testing.T, f Folder, l *Life) { rewrite(t, l.path, same) },
		"of another session": func(t *testing.T, f Folder, l *Life) {
			require.NoError(t, os.Rename(l.path, f.path("T")))
		},
		"of another boot": func(t *testing.T, f Folder, l *Life) {
			place(t, l.path, func(text string) string { return strings.ReplaceAll(text, id, "another") })
		},
		"of another device": func(t *testing.T, f Folder, l *Life) {
			place(t, l.path, func(text string) string { return strings.Replace(text, "device ", "device 1", 1) })
		},
		"with more behind it": func(t *testing.T, f Folder, l *Life) {
			place(t, l.path, func(text string) string { return text + "\n" })
		},
		"of a later format": func(t *testing.T, f Folder, l *Life) {
			place(t, l.path, func(text string) string { return strings.Replace(text, "dblock 1", "dblock 2", 1) })
		},
		"empty":   func(t *testing.T, f Folder, l *Life) { require.NoError(t, os.Truncate(l.path, 0)) },
		"removed": func(t *testing.T, f Folder, l *Life) { require.NoError(t, os.Remove(l.path)) },
		"a link": func(t *testing.T, f Folder, l *Life) {
			require.NoError(t, os.Rename(l.path, l.path+".there"))
			require.NoError(t, os.Symlink(l.path+".there", l.path))
		},
		"a pipe": func(t *testing.T, f Folder, l *Life) {
			require.NoError(t, os.Remove(l.path))
			require.NoError(t, syscall.Mkfifo(l.path, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := Folder(t.TempDir())
			l := register(t, f, "S")
			register(t, f, "another").crash()
			change(t, f, l)
			l.crash()
			assert.Equal(t, f.dead(), "another", "dead sessions")
		})
	}
}

// Root can lock the files of others. Others cannot open them.
func TestAFileOfAnotherUserIsNoProof(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(l.path, 4242, -1))
	} else {
		require.NoError(t, os.Chmod(l.path, 0))
	}
	l.crash()
	assert.Equal(t, f.dead(), "")
}

func TestAFolderOfAnotherUserIsNotUsed(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	user := filepath.Join(os.TempDir(), fmt.Sprintf("dblock-%d", os.Geteuid()))
	folder := func() Folder {
		return Setting{}.Folder(func(bool) (string, bool) { return "", true }, false, func() string { return "ID" })
	}
	assert.Equal(t, folder(), Folder(filepath.Join(user, "ID")), "of nobody yet")
	require.NoError(t, os.Mkdir(user, 0o700))
	assert.Equal(t, folder(), Folder(filepath.Join(user, "ID")), "of this user")
	other := t.TempDir()
	require.NoError(t, os.Remove(user))
	require.NoError(t, os.Symlink(other, user))
	assert.Equal(t, folder(), "", "a link")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Remove(user))
		require.NoError(t, os.Mkdir(user, 0o700))
		require.NoError(t, os.Chown(user, 4242, -1))
		assert.Equal(t, folder(), "", "of another user")
	}
	link := filepath.Join(t.TempDir(), "link") // to a folder with files that are named so
	register(t, Folder(other), "S").crash()
	require.NoError(t, os.Symlink(other, link))
	assert.Equal(t, Folder(link).dead(), "", "by a link")
}

func TestAFolderThatCannotBeUsedMeansThatNothingIsKnown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for what, f := range map[string]Folder{
		"none": "", "missing, and not to be made": Folder(filepath.Join(file, "folder")), "a file": Folder(file),
	} {
		if l, err := f.Register("S"); err == nil || l != nil {
			t.Errorf("%s: registered", what)
		}
		assert.Equal(t, f.dead(), "", what)
	}
	for _, session := range []string{"", "..", "a/b", "a.b", "ä"} {
		_, err := Folder(t.TempDir()).Register(session)
		assert.ErrorIs(t, err, errors.ErrUnsupported, session)
	}
	var none *Life
	none.End()
	assert.Equal(t, none.File(), (*os.File)(nil))
}

func TestTheProofRemainsUntilTheDatabaseWasTold(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	l.crash()
	for range f.Ended(0) {
		// Others that look are not in the way, even if one of them is stopped.
		assert.Equal(t, f.dead(), "S", "to another one that looks")
	}
	assert.Equal(t, f.dead(), "S", "after a failure")
	for p := range f.Ended(0) {
		assert.Equal(t, p.Old(), false)
		p.Remove()
	}
	assert.Equal(t, f.dead(), "", "once the database knows")
	_, err := os.Stat(l.path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Two look at once, and the slower one has opened the file before the other has removed it.
func TestAFileThatWasRemovedIsNoProof(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	l.crash()
	opened := unlocked(l.path)
	defer opened.Close()
	assert.Equal(t, proves(opened, "S"), true, "before")
	require.NoError(t, os.Remove(l.path))
	assert.Equal(t, proves(opened, "S"), false, "after")
}

func TestOfManySessionsSomeAreLookedAt(t *testing.T) {
	f := Folder(t.TempDir())
	for i := range 3 * mostProbed {
		require.NoError(t, os.WriteFile(filepath.Join(string(f), fmt.Sprint("inbox", i)), nil, 0o600))
		l := register(t, f, fmt.Sprintf("S%d", i))
		l.crash()
	}
	seen := map[string]bool{}
	for range 1000 {
		dead := strings.Fields(f.dead())
		if len(dead) != mostProbed {
			t.Fatalf("%d looked at", len(dead))
		}
		for _, session := range dead {
			seen[session] = true
		}
	}
	assert.Equal(t, len(seen), 3*mostProbed, "seen at last")
}

func TestAFileThatProvesNothingIsRemovedWhenItIsOld(t *testing.T) {
	f := Folder(t.TempDir())
	age := func(path string, d time.Duration) {
		t.Helper()
		require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(-d)))
	}
	lives, young, old := register(t, f, "lives"), register(t, f, "young"), register(t, f, "old")
	for _, l := range []*Life{young, old} {
		rewrite(t, l.path, func(text string) string { return "of an earlier boot" })
	}
	require.NoError(t, os.WriteFile(filepath.Join(string(f), "cut.new"), nil, 0o600)) // its process was killed
	require.NoError(t, os.WriteFile(filepath.Join(string(f), "inbox"), nil, 0o600))   // not of this package
	age(filepath.Join(string(f), "cut.new"), 2*worthless)
	age(filepath.Join(string(f), "inbox"), 2*worthless)
	age(lives.path, 2*worthless)
	age(old.path, worthless+time.Hour)
	age(young.path, worthless-time.Hour)
	assert.Equal(t, f.dead(), "")
	entries, err := os.ReadDir(string(f))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	assert.Equal(t, strings.Join(names, " "), "inbox lives.alive young.alive")
}

func TestAProcessThatLivesKeepsItsFileYoung(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	require.NoError(t, os.Chtimes(l.path, ago(2*worthless), ago(2*worthless)))
	isOld := func() (is bool) {
		for p := range f.Ended(0) {
			is = p.Old()
		}
		return is
	}
	l.crash()
	l.Touch()
	assert.Equal(t, isOld(), true, "touched a moment ago, as it believes")
	l.touched = ago(2 * time.Hour)
	l.Touch()
	assert.Equal(t, isOld(), false)
	var none *Life
	none.Touch()
}

func TestTheFolderGoesWithItsLastFile(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "folder"))
	a, b := register(t, f, "A"), register(t, f, "B")
	a.End()
	assert.Equal(t, f.dead(), "")
	_, err := os.Stat(string(f))
	require.NoError(t, err)
	b.End()
	_, err = os.Stat(string(f))
	assert.ErrorIs(t, err, os.ErrNotExist)
	register(t, f, "C")
}

func TestOfManyWhoWaitOneSweeps(t *testing.T) {
	f := Folder(t.TempDir())
	l := register(t, f, "S")
	l.crash()
	sweeps := func() (n int) {
		for range f.Ended(time.Hour) {
			n++
		}
		return n
	}
	for range f.Ended(time.Hour) {
		break // after a failure of the database
	}
	assert.Equal(t, sweeps(), 1, "the first")
	assert.Equal(t, sweeps(), 0, "beside it")
	assert.Equal(t, f.dead(), "S", "to one that looks in any case")
	for _, swept := range []time.Time{time.Now().Add(-2 * time.Hour), time.Now().Add(2 * time.Hour)} {
		require.NoError(t, os.Chtimes(f.mark(), swept, swept)) // the clock may have been set back
		assert.Equal(t, sweeps(), 1, "after a while")
	}
}

func TestAFileThatIsBeingMadeIsLeftToItsMaker(t *testing.T) {
	f := Folder(t.TempDir())
	path := filepath.Join(string(f), "S"+unfinished)
	made, err := open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	require.NoError(t, err)
	defer made.Close()
	assert.Equal(t, f.dead(), "")
	entries, err := filepath.Glob(path)
	require.NoError(t, err)
	assert.Equal(t, len(entries), 1, "files")
	register(t, f, "another").crash()
	for range f.Ended(0) { // as it may look in the middle
		require.NoError(t, lock(int(made.Fd()), exclusive))
	}
}

func TestWhereTheProcessesOfAHostMeet(t *testing.T) {
	id := func() string { return "ID" }
	unknown := func() string { return "" }
	engine := func(path string, shared bool) func(bool) (string, bool) {
		return func(bool) (string, bool) { return path, shared }
	}
	user := filepath.Join(os.TempDir(), fmt.Sprintf("dblock-%d", os.Getuid()))
	for what, test := range map[string]struct{ is, want Folder }{
		"by default":           {Setting{}.Folder(engine("", true), false, id), Folder(filepath.Join(user, "ID"))},
		"as set":               {Setting{Path: "/x"}.Folder(engine("", true), false, id), "/x/ID"},
		"beside the database":  {Setting{}.Folder(engine("/db-dblock", true), false, unknown), "/db-dblock"},
		"as set, all the same": {Setting{Path: "/x"}.Folder(engine("/db-dblock", true), false, id), "/x/ID"},
		"off":                  {Setting{Off: true, Path: "/x"}.Folder(engine("", true), false, id), ""},
		"in memory":            {Setting{Path: "/x"}.Folder(engine("", false), false, id), ""},
		"an unknown database":  {Setting{}.Folder(engine("", true), false, unknown), ""},
	} {
		assert.Equal(t, test.is, test.want, what)
	}
}
