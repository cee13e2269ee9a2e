package mysql_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// reads is how many rows, and entries of indexes, do has read on the actor's connection.
func (a actor) reads(t *testing.T, do func()) (n int64) {
	t.Helper()
	sum := func() (n int64) {
		t.Helper()
		rows, err := a.pool.Query("SHOW SESSION STATUS LIKE 'Handler_read%'")
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var name string
			var count int64
			require.NoError(t, rows.Scan(&name, &count))
			n += count
		}
		require.NoError(t, rows.Err())
		return n
	}
	sum() // what it costs itself
	idle := sum()
	idle = sum() - idle
	before := sum()
	do()
	return sum() - before - idle
}

// fill inserts so many rows, of which row writes the nth.
func (s server) fill(t *testing.T, insert string, n int, row func(i int) string) {
	t.Helper()
	for from := 0; from < n; from += 5000 {
		var rows []string
		for i := from; i < min(from+5000, n); i++ {
			rows = append(rows, row(i))
		}
		s.exec(t, insert+" VALUES "+strings.Join(rows, ","))
	}
}

// TestAPageReadsWhatItShows counts rows: of 100,000 locks, of which one has 10,000 waiters, of
// 20,000 events, of 2,000 sessions and 9,000 runs.
func TestAPageReadsWhatItShows(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		s.fill(t, "INSERT INTO dblock_locks (name, token, first_token, last_token, acquired_at, session_id, host, "+
			"thread, attempt, metadata)", 100000,
			func(i int) string {
				return fmt.Sprintf("('n%06d', 1, 1, 1, 1, 's%d', 'h', '', 'a%d', '')", i, i%2000, i)
			})
		s.exec(t, "UPDATE dblock_locks SET waiters = 10000 WHERE name = 'n050003'")
		s.fill(t, "INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, "+
			"enqueued_at)", 10000,
			func(i int) string {
				return fmt.Sprintf("('n050003', %d, 's%d', 'h', 't', 'w%d', 0, '', 1)", i+1, i%2000, i)
			})
		s.fill(t, "INSERT INTO dblock_sessions (id, host, pid, app, started_at)", 2000,
			func(i int) string { return fmt.Sprintf("('s%d', 'h', 1, 'a', 1)", i) })
		s.fill(t, "INSERT INTO dblock_heartbeats (session_id, expires_at)", 2000,
			func(i int) string { return fmt.Sprintf("('s%d', 9000000000000000)", i) })
		s.fill(t, "INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)",
			20000,
			func(i int) string { return fmt.Sprintf("(%d, 'n%d', 'k', 1, '', '', '', '', '')", i+1, i%10) })
		s.fill(t, "INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, detail, slot_ends)",
			9000,
			func(i int) string { return fmt.Sprintf("('job%06d', %d, 1, '', '', '', %d, '', 1)", i/3, i%3, i) })
		for _, table := range []string{"locks", "waiters", "sessions", "heartbeats", "events", "runs"} {
			s.exec(t, "ANALYZE TABLE dblock_"+table) // as the server does by itself, somewhat later
		}
		page := make([]string, 100)
		for i := range page {
			page[i] = fmt.Sprintf("n%06d", 50000+i)
		}
		first := s.number(t, "SELECT MIN(id) FROM dblock_events")
		names := func(f driver.Filter) func() (int, error) {
			return func() (int, error) {
				names, err := a.Names(t.Context(), f, 100)
				return len(names), err
			}
		}
		events := func(f driver.EventFilter) func() (int, error) {
			f.After, f.Before, f.Kinds = first+5000, first+15000, []string{"k"}
			return func() (int, error) {
				events, err := a.Events(t.Context(), f, 100)
				return len(events), err
			}
		}
		for _, c := range []struct {
			what string
			page func() (int, error)
			len  int
			most int64
		}{
			{"the first names", names(driver.Filter{}), 100, 110},
			{"names behind one", names(driver.Filter{After: "n050000"}), 100, 110},
			{"names with a prefix", names(driver.Filter{Prefix: "n05", After: "n050000"}), 100, 110},
			{"names of a host", names(driver.Filter{Host: "h", After: "n050000"}), 100, 210},
			// the clock's row too
			{"names that are held for long", names(driver.Filter{Older: time.Second, After: "n050000"}), 100, 310},
			{"names with waiters and a prefix", names(driver.Filter{Contended: true, Prefix: "n0500"}), 1, 110},
			{"names, each with its holder and 10 waiters", func() (int, error) {
				states, err := a.Read(t.Context(), "", page, 10)
				return len(states), err
			}, 100, 2000},
			{"sessions", func() (int, error) {
				sessions, err := a.Sessions(t.Context(), driver.SessionFilter{}, "s1000", 10)
				return len(sessions), err
			}, 10, 900},
			{"events", events(driver.EventFilter{}), 100, 110},
			{"the newest events", events(driver.EventFilter{Newest: true}), 100, 110},
			{"events of a name", events(driver.EventFilter{Name: "n3"}), 100, 110},
			{"the newest events of a name", events(driver.EventFilter{Name: "n3", Newest: true}), 100, 110},
			{"where a time begins", func() (int, error) {
				after, err := a.EventsSince(t.Context(), time.UnixMicro(9001))
				return int(after - first), err
			}, 8999, 2100},
			{"the latest runs of jobs", func() (int, error) {
				runs, err := a.Runs(t.Context(), driver.RunFilter{After: "job001500"}, 10)
				return len(runs), err
			}, 10, 200},
		} {
			if n := a.reads(t, func() {
				if n, err := c.page(); err != nil || n != c.len {
					t.Errorf("%s: %d, %v: want %d", c.what, n, err, c.len)
				}
			}); n > c.most || n == 0 {
				t.Errorf("%s: %d rows were read, want at most %d", c.what, n, c.most)
			} else {
				t.Logf("%s: %d rows", c.what, n)
			}
		}
	})
}
