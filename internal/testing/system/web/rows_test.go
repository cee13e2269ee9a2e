// Package web tests the page of dblockweb on a database with many rows.
package web

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// counting counts the rows that a client reads.
type counting struct {
	mu   sync.Mutex
	rows map[string]int // by the method that lists them; of queues: "places"
}

func (n *counting) hook(ctx context.Context, c *fakedb.Call) error {
	err := c.Do(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rows[c.Method] += c.Rows
	for _, s := range c.States {
		n.rows["places"] += len(s.Queue)
	}
	return err
}

// crowd is an SQLite file with so many locks of so many sessions, each tenth of which waits for the
// first lock, with two events for each lock, a term for the first one, and 300 runs of one job.
func crowd(t *testing.T, locks, sessions int) (*counting, *dblock.Client[*sql.Tx]) {
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
	counted := &counting{rows: map[string]int{}}
	c, err := dblock.New(fakedb.Through(sqlite.New(db), counted.hook), dblock.WithoutReaper())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return counted, c
}

// What a page reads does not depend on how much there is. Only that of a lock has its whole queue.
func TestAPageReadsNoMoreThanItShows(t *testing.T) {
	counted, client := crowd(t, 100_000, 1000)
	page := dblockweb.Handler(client)
	for path, want := range map[string]map[string]int{
		"/":                  {"Names": 102, "Read": 102, "places": 20}, // one more name tells that there are more
		"/?after=n010000":    {"Names": 101, "Read": 101},
		"/lock?name=n000000": {"Read": 1, "places": 100, "Events": 3},
		"/sessions":          {"Sessions": 100},
		"/events":            {"Events": 100},
		"/job?name=job":      {"Runs": 50},
		"/jobs":              {"Runs": 51},
		"/elections":         {"Names": 1, "Read": 1, "places": 10, "Events": 1},
	} {
		clear(counted.rows)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			t.Fatalf("%s: %d: %s", path, w.Code, w.Body)
		}
		for what, n := range counted.rows {
			if n > want[what] {
				t.Errorf("%s: %d rows were read by %s, want at most %d", path, n, what, want[what])
			}
		}
	}
}
