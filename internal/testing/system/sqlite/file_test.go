package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// removals are what people do to a file that is in use.
var removals = map[string]func(t *testing.T, path string){
	"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	"moved":   func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) },
	"replaced": func(t *testing.T, path string) {
		other := newFile(t, "wal")
		require.NoError(t, os.Rename(other, path))
	},
	"without its -wal":      func(t *testing.T, path string) { require.NoError(t, os.Remove(path+"-wal")) },
	"without its -shm":      func(t *testing.T, path string) { require.NoError(t, os.Remove(path+"-shm")) },
	"with the -wal emptied": func(t *testing.T, path string) { replaceByEmpty(t, path+"-wal") },
}

func replaceByEmpty(t *testing.T, path string) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.Rename(empty, path))
}

func TestAFileThatWasDeletedOrReplacedServesNobody(t *testing.T) {
	for what, remove := range removals {
		for _, journal := range journals {
			if strings.HasPrefix(what, "with") && (journal != "wal" || runtime.GOOS != "linux") {
				continue // there is none, or the system does not show which files a process has open
			}
			t.Run(what+" "+journal, func(t *testing.T) {
				f := newFixtureIn(t, journal)
				s := f.session()
				held := f.take("held", s)
				tx, late := f.begin(), f.begin()
				_, err := tx.ExecContext(t.Context(), "SELECT 1")
				require.NoError(t, err)
				up, err := f.Upkeep(t.Context(), "s")
				require.NoError(t, err)
				remove(t, f.path)
				_, err = f.Read(t.Context(), s, []string{"n"}, 0)
				require.ErrorIs(t, err, driver.ErrReplaced, "nothing of what follows may run")
				for name, call := range map[string]func() error{
					"Heartbeat": func() error { _, err := up.Heartbeat(t.Context(), s, patience); return err },
					"Take": func() error {
						_, _, err := drivertest.Take(t.Context(), f, request("n", s))
						return err
					},
					"Release": func() error { _, err := drivertest.Release(t.Context(), f, held, false); return err },
					"Guard":   func() error { return f.In(tx).Guard(t.Context(), held, nil) },
					"ReleaseTx": func() error {
						return f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil)
					},
					"LockTx": func() error {
						_, _, err := f.In(late).Lock(t.Context(), "n", func(string, int, any) bool { return false },
							true, nil)
						return err
					},
				} {
					if err := call(); !errors.Is(err, driver.ErrReplaced) || !errors.Is(err, driver.ErrConfig) ||
						!strings.Contains(err.Error(), f.path) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
}

// secondNames are the ways to give a file a second name: those of every system, and Linux's own.
var secondNames = map[string]func(t *testing.T, from, to string){
	"a hard link": func(t *testing.T, from, to string) { require.NoError(t, os.Link(from, to)) },
}

// Two names of a file in WAL mode have two holders: processes that use one of them do not see the
// -wal of the other. The first user goes on. With a rollback journal the locks are in the file.
func TestAFileWithTwoNamesServesOneOfThem(t *testing.T) {
	for what, link := range secondNames {
		for _, journal := range journals {
			t.Run(what+" "+journal, func(t *testing.T) {
				a := newFixtureIn(t, journal)
				held := a.take("n", a.session())
				path := filepath.Join(t.TempDir(), "the same.db")
				link(t, a.path, path)
				b := open(t, path, "")
				err := b.OpenSession(t.Context(), driver.Session{ID: "b", TTL: patience})
				switch {
				case journal == "delete":
					require.NoError(t, err)
					if _, taken, err := drivertest.Take(t.Context(), b, request("n", "b")); taken || err != nil {
						t.Errorf("taken by both: %t, %v", taken, err)
					}
				case !errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrReplaced) ||
					!strings.Contains(err.Error(), path):
					t.Errorf("the second name: %v", err)
				}
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, held, false)))
			})
		}
	}
}

// Broken by a check that is made once: the journal is changed while the file is in use.
func TestAFileWithTwoNamesIsRefusedOnceItIsInWALMode(t *testing.T) {
	f := newFixtureIn(t, "delete")
	held := f.take("n", f.session())
	require.NoError(t, os.Link(f.path, filepath.Join(t.TempDir(), "link.db")))
	f.exec("PRAGMA journal_mode = wal")
	f.exec("UPDATE dblock_sessions SET pid = pid") // SQLite makes the -wal when it first uses it
	require.ErrorIs(t, require.ErrOf(drivertest.Release(t.Context(), f, held, false)), driver.ErrConfig)
}

// The last connection deletes the -wal when it is closed, and the next one makes another.
func TestAPoolThatClosesAllConnectionsServes(t *testing.T) {
	f := newFixture(t)
	f.pool.SetMaxIdleConns(-1)
	s := f.session()
	for range 3 {
		held := f.take("n", s)
		if _, err := os.Stat(f.path + "-wal"); err == nil {
			t.Fatal("a connection is open")
		}
		f.release(held, false)
	}
	path := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Link(f.path, path))
	other := open(t, path, "")
	other.pool.SetMaxIdleConns(-1)
	require.ErrorIs(t, other.OpenSession(t.Context(), driver.Session{ID: "b", TTL: patience}), driver.ErrConfig)
}

// A pool of one is asked for its file as well, and what comes back is the same file.
func TestAFileThatIsPutBackServesAgain(t *testing.T) {
	f := newFixture(t)
	f.pool.SetMaxOpenConns(1)
	held := f.take("held", f.session())
	require.NoError(t, os.Rename(f.path, f.path+".old"))
	require.ErrorIs(t, require.ErrOf(drivertest.Release(t.Context(), f, held, false)), driver.ErrReplaced)
	require.NoError(t, os.Rename(f.path+".old", f.path))
	require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), f, held, false)))
}

// SQLite itself forgets the links over which it has opened a file. Broken by asking connections
// alone that the pool has already.
func TestAPathThatIsPointedElsewhereServesNobody(t *testing.T) {
	for what, link := range map[string]string{"a file": "current.db", "a folder": "current/locks.db"} {
		for _, journal := range journals {
			t.Run(what+" "+journal, func(t *testing.T) {
				old, other := newFixtureIn(t, journal).path, newFixtureIn(t, journal).path
				if what == "a folder" {
					old, other = filepath.Dir(old), filepath.Dir(other)
				}
				folder := t.TempDir()
				path := filepath.Join(folder, link)
				to := filepath.Join(folder, strings.Split(link, "/")[0])
				require.NoError(t, os.Symlink(old, to))
				f := open(t, path, "")
				s := f.session()
				held := f.take("held", s)
				up, err := f.Upkeep(t.Context(), "s")
				require.NoError(t, err)
				if alive, err := up.Heartbeat(t.Context(), s, patience); err != nil || !alive {
					t.Fatal(alive, err)
				}
				require.NoError(t, os.Remove(to))
				require.NoError(t, os.Symlink(other, to))
				b := open(t, path, "")
				b.take("held", b.session()) // the second holder
				for name, call := range map[string]func() error{
					"Heartbeat": func() error { _, err := up.Heartbeat(t.Context(), s, patience); return err },
					"Release": func() error {
						assert.Error(t, assert.ErrOf(up.Heartbeat(t.Context(), s, patience)),
							"the heartbeat does not notice")
						_, err := drivertest.Release(t.Context(), f, held, false)
						return err
					},
				} {
					if err := call(); !errors.Is(err, driver.ErrReplaced) || !errors.Is(err, driver.ErrConfig) ||
						!strings.Contains(err.Error(), other) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
}
