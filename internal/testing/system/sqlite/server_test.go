package sqlite_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

const driverName = "sqlite"

func TestMain(m *testing.M) {
	if os.Getenv(childRole) != "" {
		os.Exit(child())
	}
	os.Exit(dbtest.Run(m))
}

// journals are the two ways in which SQLite keeps readers and a writer apart.
var journals = []string{"wal", "delete"}

// fixture is an engine on a pool on a file of its own.
type fixture struct {
	driver.Engine[*sql.Tx]
	t    *testing.T
	path string
	pool *sql.DB
}

func newFixture(t *testing.T) *fixture { return newFixtureIn(t, "wal") }

func newFixtureIn(t *testing.T, journal string) *fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.db")
	migrated, err := templates[journal]()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, migrated, 0o600))
	return open(t, path, "")
}

// templates are migrated files, which are made once: tests write copies of them.
var templates = map[string]func() ([]byte, error){"wal": templateOf("wal"), "delete": templateOf("delete")}

func templateOf(journal string) func() ([]byte, error) {
	return sync.OnceValues(func() (file []byte, err error) {
		folder, err := os.MkdirTemp("", "dblock")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		path := filepath.Join(folder, "locks.db")
		pool, err := sql.Open(driverName, "file:"+path+"?"+unsynced)
		if err != nil {
			return nil, err
		}
		_, err = pool.Exec("PRAGMA journal_mode = " + journal)
		if err == nil {
			err = migrate.Up(context.Background(), pool, migrate.SQLite)
		}
		if err = errors.Join(err, pool.Close()); err != nil { // after it the file is whole
			return nil, err
		}
		return os.ReadFile(path)
	})
}

func newFile(t *testing.T, journal string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.db")
	db := openPool(t, path, "")
	require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), "PRAGMA journal_mode = "+journal)))
	return path
}

// unsynced does not wait for the disk, which has nothing to do with who may write when.
const unsynced = "_pragma=synchronous(OFF)"

// open is another pool on the same file, as of another process. The query is the rest of the
// driver's DSN.
func open(t *testing.T, path, query string) *fixture {
	t.Helper()
	return on(t, openPool(t, path, query), path)
}

func on(t *testing.T, pool *sql.DB, path string) *fixture {
	return &fixture{Engine: inside.Of(sqlite.New(pool)), t: t, path: path, pool: pool}
}

func openPool(t *testing.T, path, query string) *sql.DB {
	t.Helper()
	if !strings.Contains(query, "synchronous") {
		query = unsynced + "&" + query
	}
	db, err := sql.Open(driverName, "file:"+path+"?"+query)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	err := insist(f.t.Context(), func() error {
		_, err := f.pool.ExecContext(f.t.Context(), query, args...)
		return err
	})
	require.NoError(f.t, err)
}

func (f *fixture) number(query string, args ...any) int64 {
	f.t.Helper()
	var n int64
	err := insist(f.t.Context(), func() error { return f.pool.QueryRowContext(f.t.Context(), query, args...).Scan(&n) })
	require.NoError(f.t, err)
	return n
}

func (f *fixture) session() string {
	f.t.Helper()
	id := rand.Text()
	err := insist(f.t.Context(), func() error {
		return f.OpenSession(f.t.Context(), driver.Session{ID: id, Host: "here", PID: 1, App: "test", TTL: time.Hour})
	})
	require.NoError(f.t, err)
	return id
}

// lapse lets a session's time be over.
func (f *fixture) lapse(session string) {
	f.exec("UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", session)
}

func request(name, session string) protocol.Request {
	return protocol.Request{Name: name, Session: session, Host: "h", Thread: session, Attempt: rand.Text(),
		Patient: true}
}

// shared is a request for units of a name.
func shared(name, session string, units, of int) protocol.Request {
	r := request(name, session)
	r.Units, r.Of = units, of
	return r
}

// take takes a name that is free.
func (f *fixture) take(name, session string) protocol.Held {
	f.t.Helper()
	return f.share(request(name, session))
}

// share makes a request that is granted at once.
func (f *fixture) share(r protocol.Request) protocol.Held {
	f.t.Helper()
	grant, taken, err := drivertest.Take(f.t.Context(), f, r)
	if err != nil || !taken {
		f.t.Fatalf("%+v: taken %v, %v", r, taken, err)
	}
	return protocol.Held{Name: r.Name, Session: r.Session, Token: grant.Token, Shared: r.Units > 0}
}

// enqueue queues for a whole name, and returns the attempt.
func (f *fixture) enqueue(name, session string) string {
	f.t.Helper()
	return f.queue(request(name, session))
}

// queue makes a request that waits, and returns its attempt.
func (f *fixture) queue(r protocol.Request) string {
	f.t.Helper()
	if _, outcome, err := drivertest.Join(f.t.Context(), f, r); err != nil || outcome != protocol.Queued {
		f.t.Fatalf("%+v: outcome %v, %v", r, outcome, err)
	}
	return r.Attempt
}

// release must succeed.
func (f *fixture) release(h protocol.Held, contended bool) protocol.Handoff {
	f.t.Helper()
	next, err := drivertest.Release(f.t.Context(), f, h, contended)
	if err != nil || len(next) > 1 {
		f.t.Fatalf("handed on to %+v, %v", next, err)
	}
	return append(next, protocol.Handoff{})[0]
}

// look is the state of one name that must have a row.
func (f *fixture) look(session, name string) driver.State {
	f.t.Helper()
	states, err := f.Read(f.t.Context(), session, []string{name}, 0)
	if err != nil || len(states) != 1 {
		f.t.Fatalf("look at %q: %v, %v", name, states, err)
	}
	return states[0]
}

func (f *fixture) heartbeat(session string, want bool) {
	f.t.Helper()
	up, err := f.Upkeep(f.t.Context(), "s")
	require.NoError(f.t, err)
	alive, err := up.Heartbeat(f.t.Context(), session, time.Hour)
	if err := errors.Join(err, up.Close()); err != nil || alive != want {
		f.t.Fatalf("heartbeat: alive %v, %v; want %v", alive, err, want)
	}
}

// clean says whether the one connection of a pool is outside of any transaction.
func (f *fixture) clean() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	conn, err := f.pool.Conn(ctx)
	require.NoError(f.t, err)
	defer conn.Close()
	for _, statement := range []string{"BEGIN", "ROLLBACK"} {
		require.NoError(f.t, require.ErrOf(conn.ExecContext(ctx, statement)), statement,
			"on a connection from the pool")
	}
}

// sound checks that what is counted in the rows of names is what there is.
func (f *fixture) sound() {
	f.t.Helper()
	wrong := f.number(`SELECT count(*) FROM dblock_locks l
		WHERE shared_units <> (SELECT coalesce(sum(units), 0) FROM dblock_shares p WHERE p.name = l.name)
		   OR waiters <> (SELECT coalesce(sum(members), 0) FROM dblock_waiters w WHERE w.name = l.name)
		   OR shared_units > 0 AND (session_id IS NOT NULL OR shared_units > capacity)
		   OR shared_units > 0 AND capacity <> (SELECT min(h.capacity) FROM dblock_shares h WHERE h.name = l.name)
		   OR mixed <> (SELECT count(DISTINCT h.capacity) > 1 FROM dblock_shares h WHERE h.name = l.name)
		   OR token < (SELECT coalesce(max(token), 0) FROM dblock_shares p WHERE p.name = l.name)`)
	require.Equal(f.t, wrong, 0, "names are counted wrongly")
}

// codeOf is SQLite's result code, 0 where there is none.
func codeOf(err error) int {
	var failure *modernc.Error
	if errors.As(err, &failure) {
		return failure.Code()
	}
	return 0
}

// busy: another connection is in the way.
func busy(err error) bool { return slices.Contains([]int{sqliteBusy, sqliteLocked}, codeOf(err)&0xff) }

const (
	sqliteBusy         = 5
	sqliteLocked       = 6
	sqliteBusySnapshot = sqliteBusy | 2<<8
)

// full is PRAGMA synchronous=FULL.
const full = 2

// tick is how far the database's clock steps.
const tick = time.Millisecond
