package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// smallDisk is a file system of one megabyte.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a disk that is full is a small tmpfs, and to mount one takes root and CAP_SYS_ADMIN: mount: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

func init() { secondNames["a mount of a single file"] = mountFile }

// mountFile gives a file a second name as a container gets one to which a single file is mounted.
func mountFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.WriteFile(to, nil, 0o600))
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("to mount a file takes root and CAP_SYS_ADMIN: mount: %v", err)
	}
	// SQLite keeps it open while another connection of this process has locks in the same file.
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(to, syscall.MNT_DETACH)) })
}

// fill leaves no room, and returns how to make some.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	file, err := os.Create(path)
	require.NoError(t, err)
	for size := 4096; size > 0; size /= 2 {
		for err = error(nil); err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	require.NoError(t, file.Close())
	return func() { require.NoError(t, os.Remove(path)) }
}

// On a full disk nothing is granted that is not written, nothing that was granted is lost, and both
// go on when there is room.
func TestADiskThatIsFull(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			disk := smallDisk(t)
			path := filepath.Join(disk, "locks.db")
			a := newApplication(t, path, journal, patience)
			b := newApplication(t, path, journal, patience)
			var held []*dblock.Lock
			first, err := a.Lock(t.Context(), "first")
			require.NoError(t, err)
			held = append(held, first)
			waiting := make(chan error, 1)
			var next *dblock.Lock
			go func() {
				var err error
				next, err = b.Lock(context.Background(), "first")
				waiting <- err
			}()
			for queue := 0; queue == 0; {
				info, err := inspect.New(a.Client).Lock(t.Context(), "first")
				require.NoError(t, err)
				queue = len(info.Waiters)
			}

			free := fill(t, disk)
			failed := "" // the files have some room of their own
			for i := 0; failed == "" && i < 5000; i++ {
				name := fmt.Sprintf("%04d %s", i, strings.Repeat("x", 200))
				brief, cancel := context.WithTimeout(t.Context(), time.Second) // it tries for a TTL
				l, err := a.TryLock(brief, name)
				cancel()
				if err == nil {
					held = append(held, l)
					continue
				}
				if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
					t.Errorf("TryLock: %v", err)
				}
				failed = name
			}
			if failed == "" {
				t.Fatal("the disk is not full")
			}
			assert.NoError(t, first.Context().Err(), "a lock was lost, whose TTL is not over")
			free()

			again, err := a.Lock(t.Context(), failed)
			require.NoError(t, err)
			for _, l := range append(held, again) {
				info, err := inspect.New(b.Client).Lock(t.Context(), l.Name())
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != l.Token() {
					t.Fatalf("%q was granted with token %d: %+v, %v", l.Name(), l.Token(), info.Holders, err)
				}
				require.NoError(t, l.Unlock(t.Context()))
			}
			if err := await(t, waiting); err != nil || next.Token() <= first.Token() {
				t.Fatal(err)
			}
			for _, c := range []application{a, b} {
				assert.NoError(t, c.Close(t.Context()))
				assert.NoError(t, c.pool.Close())
			}
		})
	}
}
