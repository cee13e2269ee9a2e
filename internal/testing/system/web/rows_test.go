// Package web tests the page of dblockweb on a database with many rows.
package web

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// counting counts the rows that a client reads.
type counting struct {
	driver.Backend
	names, details, places, sessions, events, runs atomic.Int64
}

func (c *counting) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	list, err := c.Backend.Names(ctx, f, limit)
	c.names.Add(int64(len(list)))
	return list, err
}

func (c *counting) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	list, err := c.Backend.Read(ctx, session, names, waiters)
	c.details.Add(int64(len(list)))
	for _, s := range list {
		c.places.Add(int64(len(s.Queue)))
	}
	return list, err
}

func (c *counting) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	list, err := c.Backend.Sessions(ctx, f, after, limit)
	c.sessions.Add(int64(len(list)))
	return list, err
}

func (c *counting) Events(ctx context.Context, f driver.EventFilter, limit int) ([]driver.Event, error) {
	list, err := c.Backend.Events(ctx, f, limit)
	c.events.Add(int64(len(list)))
	return list, err
}

func (c *counting) Runs(ctx context.Context, f driver.RunFilter, limit int) ([]driver.Run, error) {
	list, err := c.Backend.Runs(ctx, f, limit)
	c.runs.Add(int64(len(list)))
	return list, err
}

// crowd is an SQLite file with so many locks of so many sessions, each tenth of which waits for the
// first lock, with two events for each lock, a term for the first one, and 300 runs of one job.
func crowd(t testing.TB, locks, sessions int) (*counting, *dblock.Client[*sql.Tx]) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, migrate.Up(t.Context(), db, migrate.SQLite))
	now := time.Now().UnixMicro()
	for _, statement := range []string{
		`INSERT INTO dblock_sessions (id, host, pid, app, started_at) SELECT printf('s%05d', n), 'h', n, 'a', $now FROM n WHERE n < $sessions`,
		`INSERT INTO dblock_heartbeats (session_id, expires_at) SELECT printf('s%05d', n), $now + 3600000000 FROM n WHERE n < $sessions`,
		`INSERT INTO dblock_locks (name, token, first_token, last_token, acquired_at, session_id, host, thread, attempt)
		 SELECT printf('n%06d', n), n + 1, n + 1, n + 1, $now - n, printf('s%05d', n % $sessions), 'h', '', 'a' || n FROM n WHERE n < $locks`,
		`INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
		 SELECT 'n000000', n, printf('s%05d', n), 'h', 't', 'w' || n, 0, '', $now FROM n WHERE n < $sessions AND n % 10 = 9`,
		`UPDATE dblock_locks SET waiters = (SELECT count(*) FROM dblock_waiters) WHERE name = 'n000000'`,
		`INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
		 SELECT $now, printf('n%06d', n / 2), 'granted', 1, '', 'h', '', '', '' FROM n WHERE n < 2 * $locks`,
		`INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
		 SELECT $now, 'n000000', 'elected', 1, '', 'h', '', '', '' FROM n WHERE n < 1`,
		`INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, slot_ends)
		 SELECT 'job', n, n + 1, '', 'h', '', n * 3600000000 + 1, n * 3600000000 + 2, (n + 1) * 3600000000 FROM n WHERE n < 300`,
	} {
		filled := strings.NewReplacer("$now", fmt.Sprint(now), "$locks", fmt.Sprint(locks), "$sessions",
			fmt.Sprint(sessions)).Replace(statement)
		numbers := fmt.Sprintf("WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < %d) ",
			2*max(locks, sessions))
		if !strings.HasPrefix(statement, "UPDATE") {
			filled = numbers + filled
		}
		require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), filled)))
	}
	engine := sqlite.New(db)
	counted := &counting{Backend: engine.Backend}
	engine.Backend = counted
	c, err := dblock.New(engine, dblock.WithoutReaper())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return counted, c
}

// What a page reads does not depend on how much there is. Only that of a lock has its whole queue.
func TestAPageReadsNoMoreThanItShows(t *testing.T) {
	counted, client := crowd(t, 100_000, 1000)
	page := dblockweb.Handler(client)
	for _, c := range []struct {
		page                                           string
		names, details, places, sessions, events, runs int64
	}{
		{page: "/", names: 101, details: 101, places: 20},
		{page: "/?after=n010000", names: 100, details: 100},
		{page: "/lock?name=n000000", details: 1, places: 100, events: 3},
		{page: "/sessions", sessions: 100},
		{page: "/events", events: 100},
		{page: "/job?name=job", runs: 50},
		{page: "/jobs", runs: 51},
		{page: "/elections", names: 1, details: 1, places: 10, events: 1},
	} {
		for _, n := range []*atomic.Int64{&counted.names, &counted.details, &counted.places, &counted.sessions,
			&counted.events, &counted.runs} {
			n.Store(0)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", c.page, nil))
		if w.Code != 200 {
			t.Fatalf("%s: %d: %s", c.page, w.Code, w.Body)
		}
		for what, n := range map[string][2]int64{
			"names": {counted.names.Load(), c.names}, "details": {counted.details.Load(), c.details},
			"places of queues": {counted.places.Load(), c.places},
			"sessions":         {counted.sessions.Load(), c.sessions}, "events": {counted.events.Load(), c.events},
			"runs": {counted.runs.Load(), c.runs},
		} {
			if n[0] > n[1] {
				t.Errorf("%s: %d %s were read, want at most %d", c.page, n[0], what, n[1])
			}
		}
	}
}

// BenchmarkPage compares the pages of a few locks with those of many.
func BenchmarkPage(b *testing.B) {
	for _, size := range []struct{ locks, sessions int }{{100, 100}, {100_000, 1000}} {
		_, client := crowd(b, size.locks, size.sessions)
		page := dblockweb.Handler(client)
		for _, path := range []string{"/", "/?prefix=n", "/lock?name=n000001", "/sessions", "/events", "/jobs"} {
			b.Run(fmt.Sprintf("page=%s/locks=%d", path, size.locks), func(b *testing.B) {
				for b.Loop() {
					w := httptest.NewRecorder()
					page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
					require.Equal(b, w.Code, 200, w.Body)
				}
			})
		}
	}
}
