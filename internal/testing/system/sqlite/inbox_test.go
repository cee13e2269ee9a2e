//go:build unix

package sqlite_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// A listener of another process, maybe of another build, has a datagram socket beside the database.
// It gets the number of the grant and the attempt, without the attempt where the commit is to come.
func TestANoticeGoesToTheProcessOfItsSession(t *testing.T) {
	folder, err := os.MkdirTemp("", "db") // the address of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	f := open(t, filepath.Join(folder, "locks.db"), "")
	require.NoError(t, migrate.Up(t.Context(), f.pool, migrate.SQLite))
	a, b := f.session(), f.session()
	require.NoError(t, os.Mkdir(f.path+"-dblock", 0o700))
	inbox, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(f.path+"-dblock",
		b)})
	require.NoError(t, err)
	defer inbox.Close()
	require.NoError(t, inbox.SetReadDeadline(time.Now().Add(patience)))
	arrives := func(want string) {
		t.Helper()
		text := make([]byte, 512)
		n, err := inbox.Read(text)
		require.NoError(t, err)
		require.Equal(t, string(text[:n]), want)
	}
	held := f.take("n", a)
	attempt := f.enqueue("n", b)
	tx := f.begin()
	require.NoError(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
	arrives("1 ")
	require.NoError(t, tx.Rollback())
	f.release(held, true)
	arrives("1 " + attempt)
}
