package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/migrate"
)

func TestPeopleSeeWhatTheirRightsAreFor(t *testing.T) {
	eachServer(t, func(w *world) {
		require.NoError(w, require.ErrOf(jobs.New(w.client).OncePer(w.Context(), "report", time.Hour,
			func(context.Context, *dblock.Lock, time.Time) error { return nil })))
		held := w.lock("orders/1")
		require.NoError(w, held.Record(w.Context(), "checked", ""))
		w.waits("orders/1", 1)
		user, dsn := w.as("people")
		people := w.at(dsn)
		for _, look := range []string{"ls", "ls --all", "show orders/1", "why orders/1", "sessions", "events"} {
			contains(w, people.must(strings.Fields(look)...), "there", "orders")
		}
		contains(w, people.must("jobs"), "report")
		contains(w, people.must("runs", "report"), "ok")
		d := people.doctor()
		d.hasOnly(isNote, "privileges", "may look, and take no lock", "-people.sql", "the application's data source")
		if d.status != 0 || len(d.made) != 5 {
			w.Errorf("status %d: %+v", d.status, d.made)
		}
		if s := people.unreadable(); s != "" {
			w.Errorf("dblock ui: %s", s)
		}
		if s := people.run("break", "orders/1", "--token", "1", "--reason", "x"); s.status != exitFailed {
			w.Errorf("break: %+v", s)
		}

		if w.engine == migrate.MySQL {
			user += "@'%'"
		}
		w.exec("REVOKE SELECT ON dblock_runs FROM " + user)
		people.doctor().has(isProblem, "privileges", "lacks SELECT on dblock_runs")
		s := people.unreadable()
		contains(w, s, "dblock: the page cannot show jobs: ", "denied", "dblock_runs", string(w.engine)+"-people.sql")
		if strings.Count(s, "\n") != 1 {
			w.Errorf("dblock ui: %s", s)
		}
		j := people.run("jobs")
		contains(w, j.err, "denied", "dblock_runs", string(w.engine)+"-people.sql")
		if j.status != exitFailed {
			w.Errorf("jobs: %+v", j)
		}
	})
}

// unreadable is what dblock ui says at its start.
func (w *world) unreadable() string {
	w.Helper()
	var said bytes.Buffer
	o := &options{getenv: environment("DBLOCK_DSN=" + w.dsn), stderr: &said, given: func(string) bool { return false }}
	require.NoError(w, o.using(w.Context(), func(d database) error {
		return d.locking(w.Context(), func(c *client) error {
			o.tellUnreadable(w.Context(), c)
			return nil
		})
	}))
	return said.String()
}
