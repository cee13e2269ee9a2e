package sqlite_test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// plan is how SQLite runs a generated query.
func (f *fixture) plan(file, query string) string {
	f.t.Helper()
	text, err := os.ReadFile("../../../../gen/sqlitedb/" + file + ".sql.go")
	require.NoError(f.t, err)
	match := regexp.MustCompile("(?s)const " + query + " = `-- name: [^\n]*\n(.*?)`").FindSubmatch(text)
	if match == nil {
		f.t.Fatalf("no query %s in %s", query, file)
	}
	var args []any
	for i := range 9 {
		if strings.Contains(string(match[1]), "?"+string(rune('1'+i))) {
			args = append(args, sql.NullString{})
		}
	}
	rows, err := f.pool.QueryContext(f.t.Context(), "EXPLAIN QUERY PLAN "+string(match[1]), args...)
	require.NoError(f.t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(f.t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	require.NoError(f.t, rows.Err())
	return strings.Join(plan, "\n")
}

// TestAPageReadsWhatItShows: each table is searched along the index that has the order of the page.
func TestAPageReadsWhatItShows(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		file, query string
		searches    []string
		sorts       bool // what it has found, which is a page
	}{
		{"inspection", "names", []string{"SEARCH l USING PRIMARY KEY (name>? AND name<?)",
			"SEARCH p USING PRIMARY KEY (name=?)"}, false},
		{"names", "placeOf", []string{"SEARCH w USING PRIMARY KEY (name=?)"}, false},
		{"read", "read", []string{"SEARCH l USING PRIMARY KEY (name=?)", "SEARCH w USING PRIMARY KEY (name=?)"}, false},
		{"read", "readAll", []string{
			"SEARCH l USING PRIMARY KEY (name=?)", "SEARCH w USING PRIMARY KEY (name=? AND ticket=?)",
			"SEARCH q USING PRIMARY KEY (name=?)",
		}, true},
		{"inspection", "sessions", []string{"SEARCH s USING PRIMARY KEY (id>?)",
			"SEARCH l USING COVERING INDEX dblock_locks_session (session_id=?)",
			"SEARCH r USING COVERING INDEX dblock_shares_session (session_id=?)",
			"SEARCH w USING INDEX dblock_waiters_owner (session_id=?)"}, true},
		{"records", "events", []string{"SEARCH v USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}, false},
		{"records", "newestEvents", []string{"SEARCH v USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}, false},
		{"records", "eventsOf", []string{"SEARCH v USING INDEX dblock_events_name (name=? AND id>? AND id<?)"}, false},
		{"records", "newestEventsOf", []string{"SEARCH v USING INDEX dblock_events_name (name=? AND id>? AND id<?)"},
			false},
		{"records", "eventsSince", []string{"SEARCH v USING COVERING INDEX dblock_events_at (at>?)"}, false},
		{"records", "latestRuns", []string{"SEARCH d USING PRIMARY KEY (name>?)", "SEARCH x USING PRIMARY KEY (name=?)",
			"SEARCH r USING PRIMARY KEY (name=? AND slot=?)"}, true},
	} {
		plan := f.plan(c.file, c.query)
		for _, search := range c.searches {
			if !strings.Contains(plan, search) {
				t.Errorf("%s: no %q in\n%s", c.query, search, plan)
			}
		}
		if scan := regexp.MustCompile(`SCAN (dblock_[^c]|[lwqxsrdv]\b).*`).FindString(plan); scan != "" {
			t.Errorf("%s: %q in\n%s", c.query, scan, plan)
		}
		if strings.Contains(plan, "TEMP B-TREE") && !c.sorts {
			t.Errorf("%s sorts:\n%s", c.query, plan)
		}
	}
}

// TestAReaperReadsOnePageOfNames: with statistics of a large table, too.
func TestAReaperReadsOnePageOfNames(t *testing.T) {
	f := newFixture(t)
	for _, statement := range []string{
		"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2000) " +
			"INSERT INTO dblock_locks (name, token, acquired_at) SELECT 'name/' || n, 1, 1 FROM numbers",
		"ANALYZE",
	} {
		_, err := f.pool.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	plan := f.plan("names", "miscounted")
	for _, search := range []string{"SEARCH n USING PRIMARY KEY (name>? AND name<?)",
		"SEARCH l USING PRIMARY KEY (name=?)"} {
		if !strings.Contains(plan, search) {
			t.Errorf("no %q in\n%s", search, plan)
		}
	}
}
