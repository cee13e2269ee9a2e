//go:build unix

package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// patience bounds a hang.
const patience = time.Minute

// databaseFile is a file with the path and the rights of a database: all that an inbox needs of
// one.
func databaseFile(t *testing.T, folder string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), folder, "locks.db")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// Only a notice has the attempt in it: a look has not.
func TestANoticeOfAnotherProcessIsHeard(t *testing.T) {
	for name, folder := range map[string]string{"a short path": "",
		"a path too long for a socket": strings.Repeat("long/", 40)} {
		t.Run(name, func(t *testing.T) {
			path := databaseFile(t, folder, 0o600)
			heard, ready, ended := make(chan string), make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				ended <- listen(ctx, "s", func() (receiver, error) { return openInbox(path, "s") },
					func(context.Context, string) (sighting, error) { return sighting{}, nil },
					func() { close(ready) }, func(h protocol.Hint) { heard <- h.Attempt })
			}()
			<-ready
			for nth := range int64(20) {
				require.NoError(t, post(path, notice{"s", nth, "attempt"}))
				select {
				case got := <-heard:
					require.Equal(t, got, "attempt", "was heard")
				case <-time.After(patience):
					t.Fatal("it was not heard")
				}
			}
			cancel()
			assert.ErrorIs(t, <-ended, context.Canceled)
		})
	}
}

// Broken by a post that waits.
func TestANoticeThatFindsTheInboxFullIsDropped(t *testing.T) {
	path := databaseFile(t, "", 0o600)
	b, err := openInbox(path, "s")
	require.NoError(t, err)
	defer b.close()
	for err = nil; err == nil; {
		err = post(path, notice{"s", 1, "attempt"})
	}
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("a full inbox: %v", err)
	}
}

func TestTheInboxesOfDeadProcessesAreTakenAway(t *testing.T) {
	path := databaseFile(t, "", 0o600)
	dead, err := openInbox(path, "dead")
	require.NoError(t, err)
	require.NoError(t, dead.socket.Close()) // as by SIGKILL
	b, err := openInbox(path, "alive")
	require.NoError(t, err)
	other, err := openInbox(path, "another")
	require.NoError(t, err)
	assert.ErrorIs(t, assert.ErrOf(os.Lstat(dead.path)), fs.ErrNotExist, "the inbox of a dead process")
	for _, b := range []*inbox{b, other} {
		if !b.stands() {
			t.Error("the inbox of a living session was taken away")
		}
		b.close()
		if b.stands() {
			t.Error("the inbox is closed, and stands")
		}
	}
	assert.ErrorIs(t, assert.ErrOf(os.Lstat(path+"-dblock")), fs.ErrNotExist, "the folder is left")
}

func TestABoxIsForThoseWhoCanWriteToTheDatabase(t *testing.T) {
	for database, want := range map[fs.FileMode][2]fs.FileMode{
		0o600: {0o700, 0o600}, 0o644: {0o700, 0o600}, 0o664: {0o770, 0o660}, 0o666: {0o777, 0o666},
	} {
		b, err := openInbox(databaseFile(t, "", database), "s")
		require.NoError(t, err)
		folder, err := os.Stat(filepath.Dir(b.path))
		require.NoError(t, err)
		assert.Equal(t, [2]fs.FileMode{folder.Mode().Perm(), b.made.Mode().Perm()}, want, "a database of mode",
			database)
		b.close()
	}
}

func TestABoxIsNeverOutsideItsFolder(t *testing.T) {
	path := databaseFile(t, "", 0o600)
	for _, session := range []string{"", ".", "..", "../x", "a/b", "/"} {
		if b, err := openInbox(path, session); err == nil {
			t.Errorf("%q: an inbox at %s", session, b.path)
		}
		assert.Error(t, post(path, notice{session, 1, "a"}), session, "posted")
	}
}
