package certmagiclock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/caddyserver/certmagic"

	"github.com/dblock-go/dblock"
	certmagiclock "github.com/dblock-go/dblock/contrib/certmagic"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	prefix = "certs"
	// patience is how long a test waits for what must happen.
	patience = 40 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a database, and a folder in which the certificates are.
type world struct {
	*testing.T
	file, folder string
}

func newWorld(t *testing.T) world {
	w := world{t, filepath.Join(t.TempDir(), "dblock.db"), t.TempDir()}
	require.NoError(t, migrate.Up(t.Context(), w.open(), migrate.SQLite))
	return w
}

func (w world) open() *sql.DB {
	db, err := sql.Open("sqlite",
		"file:"+w.file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	require.NoError(w, err)
	w.Cleanup(func() { _ = db.Close() })
	return db
}

func (w world) client() *dblock.Client[*sql.Tx] {
	c, err := dblock.New(sqlite.New(w.open()), dblock.WithTTL(10*time.Second))
	require.NoError(w, err)
	w.Cleanup(func() { assert.NoError(w, c.Close(context.Background())) })
	return c
}

// instance is the storage of a process of its own.
func (w world) instance() *certmagiclock.Storage {
	s, err := certmagiclock.WithLocks(&certmagic.FileStorage{Path: w.folder}, w.client().Locker(), prefix)
	require.NoError(w, err)
	return s
}

// lose takes the lock of a name from its holder.
func (w world) lose(name string) {
	w.Helper()
	if n, err := w.client().Break(w.Context(), dblock.Name(prefix, name), "test"); n != 1 || err != nil {
		w.Fatal(n, err)
	}
}
