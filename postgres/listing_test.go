package postgres

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A plan as EXPLAIN tells it.
type plan struct {
	Relation  string  `json:"Relation Name"`
	Rows      float64 `json:"Actual Rows"` // for each loop
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Unjoined  float64 `json:"Rows Removed by Join Filter"`
	Filter    string
	Join      string `json:"Join Filter"`
	Hit       int    `json:"Shared Hit Blocks"`
	Read      int    `json:"Shared Read Blocks"`
	Plans     []plan
}

// read is how many rows of tables were read.
func (p plan) read() (n float64) {
	if p.Relation != "" {
		n = (p.Rows + p.Filtered + p.Rechecked) * p.Loops
	}
	for _, part := range p.Plans {
		n += part.read()
	}
	return n
}

// seen is how many rows, of tables or not, all of its parts have looked at. A row that is compared
// with a list counts once for each of the list.
func (p plan) seen(list int) float64 {
	n := (p.Rows + p.Filtered + p.Rechecked + p.Unjoined) * p.Loops
	if strings.Contains(p.Filter+p.Join, "= ANY (") {
		n *= float64(list)
	}
	for _, part := range p.Plans {
		n += part.seen(list)
	}
	return n
}

// plan runs a statement with a plan for its parameters (force_custom_plan), or with the one that
// the server keeps after some times (auto), and returns the plan. In its transaction others come
// before it.
func (s *script) plan(st statement, mode string, before ...statement) plan {
	s.Helper()
	conn, err := s.pool.Acquire(s.Context())
	require.NoError(s, err)
	defer conn.Release()
	run := func(text string) (answer string) {
		s.Helper()
		results, err := conn.Conn().PgConn().Exec(s.Context(), text).ReadAll()
		require.NoError(s, err, text)
		for _, row := range results[0].Rows {
			answer += string(row[0])
		}
		return answer
	}
	run("SET plan_cache_mode = " + mode)
	run("DEALLOCATE ALL")
	prepare := func(name string, st statement) (execute string) {
		var values []string
		for _, arg := range st.args {
			values = append(values, "'"+strings.ReplaceAll(fmt.Sprint(arg), "'", "''")+"'")
		}
		run("PREPARE " + name + " AS " + st.sql)
		return "EXECUTE " + name + " (" + strings.Join(values, ", ") + ")"
	}
	begin := []string{"BEGIN"}
	for i, st := range before {
		begin = append(begin, prepare(fmt.Sprint("before", i), st))
	}
	execute := prepare("measured", st)
	undone := func(text string) string {
		for _, text := range begin {
			run(text)
		}
		defer run("ROLLBACK")
		return run(text)
	}
	for range 6 {
		undone(execute)
	}
	var plans []struct{ Plan plan }
	require.NoError(s, json.Unmarshal([]byte(undone("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+execute)), &plans))
	return plans[0].Plan
}

// TestABatchLooksAtItsOwnRows counts what 128 requests and 128 releases in a table of 3,000 locks
// look at, or 256 places that leave a queue of 3,000, with statistics and without. A plan that
// reads a small table once is as good as one that looks each row up.
func TestABatchLooksAtItsOwnRows(t *testing.T) {
	const half = 128
	s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
	s.session("s", time.Minute)
	s.exec(`INSERT INTO dblock_locks (name, token, first_token, last_token, acquired_at, session_id)
	         SELECT 'n' || i, i, i, i, 1, CASE WHEN i <= 128 THEN 's' END FROM generate_series(1, 3000) i`)
	s.exec(`INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
	         SELECT 'n1', i, 's', 'h', 't', 'a' || i, 0, '', 1 FROM generate_series(1, 3000) i`)
	var changes []batched
	var names []string
	var tickets []int64
	for i := 1; i <= 2*half; i++ {
		c := batched{Order: i, Name: fmt.Sprint("n", i), Session: "s", Attempt: fmt.Sprint("a", i)}
		if i <= half {
			c.Token = int64(i)
		}
		changes, names, tickets = append(changes, c), append(names, c.Name), append(tickets, int64(i))
	}
	for _, prepare := range []string{"SELECT 1", "ANALYZE"} {
		s.exec(prepare)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, c := range []struct {
				what string
				statement
				most int
			}{
				{"BatchRows", query(postgresdb.BatchRows, list(changes)), 4 * 3000},
				{"EnsureRows", query(postgresdb.EnsureRows, list(names)), 4 * 3000},
				{"DropPlaces", query(postgresdb.DropPlaces, postgresdb.DropPlacesParams{Name: "n1",
					Tickets: list(tickets)}), 4 * 3000},
			} {
				n := int(s.plan(c.statement, mode).seen(len(names)))
				if n > c.most || n < half {
					t.Errorf("%s: %d rows, want at most %d (%s, %s)", c.what, n, c.most, mode, prepare)
				}
				t.Logf("%s: %d rows (%s, %s)", c.what, n, mode, prepare)
			}
		}
	}
}

// TestThoseThatLeftAQueueAreNotPassedAgain counts the pages that statements touch which look for
// the first places of a queue, where 30,000 have left it since the last VACUUM, with statistics
// from before and from after that. Broken by a search that begins at the first ticket of all, or
// that goes through the index on sessions, which is the smaller one.
func TestThoseThatLeftAQueueAreNotPassedAgain(t *testing.T) {
	for _, waiting := range []int{1, 2, 3, 30} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
			for i := range 8 {
				s.session(fmt.Sprint("s", i), time.Minute)
			}
			for _, text := range []string{
				"ALTER TABLE dblock_waiters SET (autovacuum_enabled = false)",
				`INSERT INTO dblock_locks (name, token, first_token, last_token, acquired_at, session_id, attempt, first_ticket, waiters)
				 SELECT 'held', 1, 1, 1, 1, 's1', 'a', 30001, n FROM generate_series(%[1]d, %[1]d) n UNION ALL
				 SELECT 'free', 1, 1, 1, 1, NULL, '', 30001, n FROM generate_series(%[1]d, %[1]d) n`,
				`INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
				 SELECT name, i, 's' || i %% 8, 'h', 't', name || i, 0, '', 1
				   FROM (VALUES ('held'), ('free')) n (name), generate_series(1, 30000 + %[1]d) i`,
				"DELETE FROM dblock_waiters WHERE ticket <= 30000",
			} {
				if strings.Contains(text, "%") {
					text = fmt.Sprintf(text, waiting)
				}
				s.exec(text)
			}
			for _, prepare := range []string{"SELECT 1", "ANALYZE"} {
				s.exec(prepare)
				for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
					for _, c := range []struct {
						what string
						name string // the row of this name is locked before
						statement
					}{
						{"HandToHead", "held", query(postgresdb.HandToHead, postgresdb.HandToHeadParams{Name: "held",
							Session: "s1", Token: 1})},
						{"Places", "held", query(postgresdb.Places, postgresdb.PlacesParams{Name: "held",
							Lowest: math.MinInt64, Most: firstPage})},
						{"Read", "", query(postgresdb.Read, postgresdb.ReadParams{Names: list([]string{"free"})})},
						{"ReadAll", "", query(postgresdb.ReadAll, postgresdb.ReadAllParams{
							Names: list([]string{"held"}), Most: 10,
						})},
					} {
						var before []statement
						if c.name != "" {
							before = append(before, query(postgresdb.LockRowWithin,
								postgresdb.LockRowWithinParams{LockTimeout: "1s", Name: c.name}))
						}
						most := 100 + 10*waiting
						p := s.plan(c.statement, mode, before...)
						for tries := 1; tries < 3 && p.Hit+p.Read > most; tries++ {
							// What is written goes to other pages, and into the indexes, while the
							// server itself has one of these in use and does not tidy it up.
							p = s.plan(c.statement, mode, before...)
						}
						if n := p.Hit + p.Read; n > most || p.Rows == 0 {
							t.Errorf("%s: %d pages, %v rows (%s, %s)", c.what, n, p.Rows, mode, prepare)
						} else {
							t.Logf("%s: %d pages (%s, %s)", c.what, n, mode, prepare)
						}
					}
				}
			}
		})
	}
}

// TestAPageReadsWhatItShows counts rows: of 100,000 locks, of which one has 10,000 waiters, of as
// many events, of 2,000 sessions and 9,000 runs. No index leads from a session to its locks, so a
// page of sessions reads all of these.
func TestAPageReadsWhatItShows(t *testing.T) {
	s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
	for _, text := range []string{
		`INSERT INTO dblock_locks (name, token, first_token, last_token, acquired_at, session_id, host, attempt)
		 SELECT 'n' || lpad(i::text, 6, '0'), 1, 1, 1, 1, 's' || i % 2000, 'h', 'a' || i FROM generate_series(1, 100000) i`,
		`UPDATE dblock_locks SET waiters = 10000 WHERE name = 'n050003'`,
		`INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
		 SELECT 'n050003', i, 's' || i % 2000, 'h', 't', 'w' || i, 0, '', 1 FROM generate_series(1, 10000) i`,
		`INSERT INTO dblock_sessions (id, host, pid, app, started_at) SELECT 's' || i, 'h', 1, 'a', 1 FROM generate_series(0, 1999) i`,
		`INSERT INTO dblock_heartbeats (session_id, expires_at) SELECT 's' || i, 9000000000000000 FROM generate_series(0, 1999) i`,
		`INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
		 SELECT i, 'n' || i % 10, 'k', 1, '', '', '', '', '' FROM generate_series(1, 100000) i`,
		`INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, slot_ends)
		 SELECT 'job' || lpad((i / 3)::text, 6, '0'), i % 3, 1, '', '', '', i, i FROM generate_series(1, 9000) i`,
		"ANALYZE",
	} {
		s.exec(text)
	}
	page := make([]string, 100)
	for i := range page {
		page[i] = fmt.Sprintf("n%06d", 50001+i)
	}
	events := driver.EventFilter{After: 10000, Before: 90000, Kinds: []string{"k"}}
	newest, of, newestOf := events, events, events
	newest.Newest, newestOf.Newest = true, true
	of.Name, newestOf.Name = "n3", "n3"
	for _, c := range []struct {
		what string
		statement
		most int
	}{
		{"the first names", names(driver.Filter{}, 100), 101},
		{"names behind one", names(driver.Filter{After: "n050000"}, 100), 101},
		{"names with a prefix", names(driver.Filter{Prefix: "n05", After: "n050000"}, 100), 101},
		{"names of a host", names(driver.Filter{Host: "h", After: "n050000"}, 100), 201}, // the name, and its holder
		{"names that are held for long", names(driver.Filter{Older: 1000, After: "n050000"}, 100), 201},
		{"the last names with waiters", names(driver.Filter{Contended: true, After: "n050000"}, 100), 2},
		{"names with waiters and a prefix", names(driver.Filter{Contended: true, Prefix: "n0500"}, 100), 2},
		{"names, each with its holder and 10 waiters", query(postgresdb.ReadAll, postgresdb.ReadAllParams{
			Names: list(page), Most: 10,
		}), 100 + 100 + 10 + 2*2000}, // a plan may read all sessions
		{"sessions", query(postgresdb.Sessions, postgresdb.SessionsParams{After: "s1000", Most: 10}),
			100_000 + 2*15 + 10*5 + 10}, // all names, once
		{"events", eventsOf(events, 100), 100},
		{"the newest events", eventsOf(newest, 100), 100},
		{"events of a name", eventsOf(of, 100), 100},
		{"the newest events of a name", eventsOf(newestOf, 100), 100},
		{"where a time begins", query(postgresdb.EventsSince, int64(50000)), 1000},
		{"the runs of a job", query(postgresdb.LatestRuns, postgresdb.LatestRunsParams{After: "job001500", Most: 10}),
			2 * (30 + 4)},
	} {
		for _, mode := range []string{"force_custom_plan", "auto"} {
			n := int(s.plan(c.statement, mode).read())
			if n > c.most || n == 0 {
				t.Errorf("%s: %d rows were read, want at most %d (%s)", c.what, n, c.most, mode)
			}
			t.Logf("%s: %d rows (%s)", c.what, n, mode)
		}
	}
}
