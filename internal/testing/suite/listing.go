package suite

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var listing = inPlaces(own{
	{"Sessions returns the clients that live, with what they hold and wait for", listSessions},
	{"Sessions shows those that have ended or whose time is over only if it is asked to", listDeadSessions},
})

// all is what an iteration yields.
func all[T any](t testing.TB, seq iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for v, err := range seq {
		require.NoError(t, err)
		list = append(list, v)
	}
	return list
}

// namesOf are the names of what List yields.
func namesOf(infos []inspect.Info) string {
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return strings.Join(names, " ")
}

// wait has so many goroutines of a client wait for a name until the test ends.
func (e *env) wait(t *testing.T, c Client, name string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i := range n {
		waiter := locking(ctx, c, name)
		e.queued(t, name, i+1)
		t.Cleanup(func() {
			cancel()
			// otherwise it was granted just then
			if o := within(t, patience, "the waiter gives up", waiter); o.err != nil {
				calledOff(t, o.err, context.Canceled)
			}
		})
	}
}

func listSessions(t *testing.T, e *env) {
	a := e.client(t, dblock.WithApp("app a"), dblock.WithHost("host a"))
	b := e.client(t, dblock.WithApp("app b"), dblock.WithHost("host b"))
	lock(t, a, "n")
	lock(t, a, "r", dblock.Shared())
	lock(t, b, "r", dblock.Shared())
	e.wait(t, b, "n", 2)
	find := func(f inspect.SessionFilter) (apps string) {
		for _, s := range all(t, b.Sessions(t.Context(), f)) {
			apps += s.App
		}
		return apps
	}
	sessions := all(t, b.Sessions(t.Context(), inspect.SessionFilter{}))
	if len(sessions) != 2 || sessions[0].ID >= sessions[1].ID {
		t.Fatalf("%+v: want two, in the order of their ids", sessions)
	}
	if rest := all(t, b.Sessions(t.Context(), inspect.SessionFilter{After: sessions[0].ID})); len(rest) != 1 ||
		rest[0].ID != sessions[1].ID {
		t.Errorf("%+v: want the second alone", rest)
	}
	slices.SortFunc(sessions, func(x, y inspect.Session) int { return cmp.Compare(x.App, y.App) })
	most := longTTL
	if e.wiring.Kind == TiDB {
		most += 50 * time.Millisecond // a step of its clock
	}
	for i, want := range []inspect.Session{
		{ID: e.session(t, "n"), Host: "host a", App: "app a", Held: 2},
		{ID: e.text(t, "SELECT session_id FROM dblock_waiters WHERE name = 'n'"), Host: "host b", App: "app b", Held: 1,
			Waiting: 2},
	} {
		got := sessions[i]
		want.PID, want.Alive, want.Started, want.Until = os.Getpid(), true, got.Started, got.Until
		age, left := e.now(t)-got.Started.UnixMicro(), time.Until(got.Until)
		if got != want || age < -2000 || age > patience.Microseconds() || left <= longTTL/2 || left > most {
			t.Errorf("%+v, %d µs old, %v left: want %+v", got, age, left, want)
		}
	}
	for _, c := range []struct {
		filter inspect.SessionFilter
		want   string
	}{
		{inspect.SessionFilter{Host: "host a"}, "app a"},
		{inspect.SessionFilter{App: "app b"}, "app b"},
		{inspect.SessionFilter{App: "app b", Host: "host a"}, ""},
		{inspect.SessionFilter{Host: "host a "}, ""},
		{inspect.SessionFilter{App: "App a"}, ""},
	} {
		assert.Equal(t, find(c.filter), c.want, c.filter)
	}
	for range b.Sessions(t.Context(), inspect.SessionFilter{}) {
		break // the caller has seen enough
	}
}

func listDeadSessions(t *testing.T, e *env) {
	c := e.client(t, dblock.WithoutReaper())
	lock(t, c, "n")
	mine := e.session(t, "n")
	var rows, beats []string
	for i := range 620 { // more than a page
		rows = append(rows, fmt.Sprintf("('0%03d', 'h', 1, '', 1)", i))
		if i >= 10 {
			beats = append(beats, fmt.Sprintf("('0%03d', 1)", i))
		}
	}
	e.exec(t, "INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES "+strings.Join(rows, ", "))
	e.exec(t, "INSERT INTO dblock_heartbeats (session_id, expires_at) VALUES "+strings.Join(beats, ", "))
	e.exec(t, "UPDATE dblock_heartbeats SET expires_at = ? WHERE session_id = '0619'",
		e.now(t)+time.Hour.Microseconds())
	e.exec(t, "UPDATE dblock_sessions SET dead = (1 = 1) WHERE id = '0619'")
	if got := all(t, c.Sessions(t.Context(), inspect.SessionFilter{})); len(got) != 1 || got[0].ID != mine {
		t.Errorf("%d live, first %+v: want %q alone", len(got), got[0], mine)
	}
	if got := all(t, c.Sessions(t.Context(), inspect.SessionFilter{Dead: true, Limit: 510})); len(got) != 510 ||
		got[509].ID != "0509" {
		t.Errorf("%d sessions, want the first 510", len(got))
	}
	got := all(t, c.Sessions(t.Context(), inspect.SessionFilter{Dead: true}))
	require.Equal(t, len(got), 621, "sessions")
	for i, s := range got {
		ended := i < 10 || i == 619
		switch {
		case i == 620:
			if s.ID != mine || !s.Alive {
				t.Errorf("%+v: want %q, alive", s, mine)
			}
		case s.ID != fmt.Sprintf("0%03d", i), s.Alive, s.Until.IsZero() != ended, s.Until.After(time.Now()):
			t.Errorf("%d: %+v", i, s)
		}
	}
}
