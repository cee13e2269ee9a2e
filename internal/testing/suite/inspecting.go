package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var inspecting = inPlaces(own{
	{"Inspect returns the holders and waiters of a name, in order", inspectLock},
	{"List goes through all names that match, and LockAll locks so many at once", list},
	{"Record is refused to a former holder of the lock", recordFenced},
	{"Raise lifts the token of this lock and of those after it", raise},
}, moving{
	{"Until moves with the heartbeats, and not past a fixed lease", until},
}, flowing{
	{"Watch tells of changes when they are recorded, and when a holder dies", watch},
	{"the history tells what happened, if the client keeps one", history},
})

func inspectLock(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithApp("app a")), e.client(t)
	if info, err := a.Inspect(t.Context(), "n"); err != nil || info.Name != "n" ||
		len(info.Holders)+len(info.Waiters) > 0 {
		t.Errorf("of a name that nobody used: %+v, %v", info, err)
	}
	l := lock(t, a, "n", dblock.Metadata(map[string]string{"why": "test"}), dblock.Owner("host", "thread"))
	again := lock(t, a, "n", dblock.Owner("host", "thread"))
	waiters := []<-chan outcome{}
	for i, options := range [][]dblock.LockOption{nil,
		{dblock.Permits(2, 3), dblock.Metadata(map[string]string{"i": "1"})}, nil} {
		waiters = append(waiters, locking(context.Background(), b, "n", options...))
		e.queued(t, "n", i+1)
	}
	require.NoError(t, b.Ask(t.Context(), "n", "to see"))
	info, err := b.Inspect(t.Context(), "n")
	if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 3 || info.Token != l.Token() || info.Capacity != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	h := info.Holders[0]
	if h.Session != e.session(t, "n") || !h.Alive {
		t.Errorf("holder %+v", h)
	}
	if h.Host != "host" || h.Thread != "thread" || h.App != "app a" || h.PID == 0 || h.Token != l.Token() || h.Shared ||
		h.Metadata["why"] != "test" || h.Asked != "to see" || h.Since.IsZero() || time.Until(h.Until) < longTTL/2 {
		t.Errorf("holder %+v", h)
	}
	for i, w := range info.Waiters {
		if !w.Alive || w.Session != b.Stats().Session {
			t.Errorf("waiter %d: %+v", i, w)
		}
		if w.Token != 0 || w.Since.IsZero() || w.Shared != (i == 1) || (w.Permits == 2) != (i == 1) ||
			(w.Metadata["i"] == "1") != (i == 1) ||
			i > 0 && w.Since.Before(info.Waiters[i-1].Since) {
			t.Errorf("waiter %d: %+v", i, w)
		}
	}
	unlock(t, again)
	unlock(t, l)
	for _, w := range waiters {
		l := granted(t, soon, w)
		if info, err := b.Inspect(t.Context(), "n"); err != nil || len(info.Holders) != 1 ||
			info.Holders[0].Token != l.Token() || info.Holders[0].Asked != "" {
			t.Errorf("%+v, %v", info, err)
		}
		unlock(t, l)
	}
	r1, r2 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared(), dblock.Lease(time.Hour))
	for _, over := range []bool{false, true} {
		info, err = a.Inspect(t.Context(), "n")
		if err != nil || len(info.Holders) != 2 || info.Capacity != 0 || !info.Holders[0].Shared ||
			info.Holders[0].Token != r1.Token() || info.Holders[1].Token != r2.Token() || !info.Holders[0].Alive ||
			info.Holders[1].Alive == over || info.Holders[1].Until.Before(time.Now()) != over {
			t.Errorf("%+v, %v: want that the second is over: %v", info, err, over)
		}
		e.exec(t, "UPDATE dblock_shares SET expires_at = 1 WHERE token = ?", r2.Token())
	}
	unlock(t, r1)
	_ = r2.Unlock(t.Context())
	is(t, assert.ErrOf(a.Inspect(t.Context(), "")), dblock.ErrInvalidName)
}

func list(t *testing.T, e *env) {
	a := e.client(t)
	var names []string
	for i := range 620 { // more than a page
		names = append(names, fmt.Sprintf("list/%04d", i*7%620))
	}
	held := func() int64 { return e.number(t, "SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL") }
	var all *dblock.Locks
	for again := range 2 { // names without rows, and with
		var err error
		all, err = a.LockAll(t.Context(), names)
		require.NoError(t, err)
		assert.Equal(t, held(), 620, "are held")
		assert.Equal(t, len(all.Tokens()), 620, "tokens")
		if again == 0 {
			require.NoError(t, all.Unlock(t.Context()))
			assert.Equal(t, held(), 0, "are left")
		}
	}
	one := lock(t, a, "LIST/other", dblock.Owner("another host", "x"))
	unlock(t, lock(t, a, "idle"))
	r := lock(t, a, "read", dblock.Shared())
	count := func(f inspect.Filter) (n int) {
		last := ""
		for info, err := range a.List(t.Context(), f) {
			require.NoError(t, err)
			if info.Name <= last {
				t.Errorf("%q after %q", info.Name, last)
			}
			last, n = info.Name, n+1
		}
		return n
	}
	for _, c := range []struct {
		filter inspect.Filter
		want   int
	}{
		{inspect.Filter{}, 622},
		{inspect.Filter{Prefix: "list/"}, 620},
		{inspect.Filter{Prefix: "list/000"}, 10},
		{inspect.Filter{Prefix: "list%"}, 0},
		{inspect.Filter{Host: "another host"}, 1},
		{inspect.Filter{Older: time.Hour}, 0},
		{inspect.Filter{Older: time.Microsecond, Prefix: "read"}, 1},
		{inspect.Filter{Idle: true}, 623},
		{inspect.Filter{Limit: 1}, 1},
		{inspect.Filter{Limit: 510}, 510},
		{inspect.Filter{Prefix: "list/000", Limit: 11}, 10},
	} {
		assert.Equal(t, count(c.filter), c.want, c.filter)
	}
	pages := a.List(t.Context(), inspect.Filter{})
	for range 2 { // an iteration begins where its filter says, each time
		n := 0
		for range pages {
			n++
		}
		assert.Equal(t, n, 622, "names")
	}
	for range pages {
		break // the caller has seen enough
	}
	unlock(t, one)
	unlock(t, r)
	require.NoError(t, all.Unlock(t.Context()))
}

func watch(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen, over := make(chan inspect.Info, 100), make(chan error, 1)
	go func() {
		for info, err := range b.Watch(ctx, "n") {
			if err != nil {
				over <- err
				return
			}
			seen <- info
		}
	}()
	if info := within(t, soon, "the state at first", seen); len(info.Holders) > 0 {
		t.Errorf("%+v", info)
	}
	until := func(d time.Duration, what string, so func(info inspect.Info) bool) {
		t.Helper()
		for over := time.After(d); ; {
			select {
			case info := <-seen:
				if so(info) {
					return
				}
			case <-over:
				t.Fatalf("not within %v: %s", d, what)
			}
		}
	}
	l := lock(t, a, "n")
	mine := func(info inspect.Info) bool { return len(info.Holders) == 1 && info.Holders[0].Token == l.Token() }
	for range 2 { // the second changes nothing that Inspect shows
		require.NoError(t, l.Record(t.Context(), "hello", "I have it"))
		until(soon, "the watcher is told", mine)
	}
	breaks(t, a, "n", 1)
	until(patience, "the watcher sees it go", func(info inspect.Info) bool { return len(info.Holders) == 0 })
	cancel()
	is(t, within(t, soon, "the iteration ends", over), context.Canceled)
	eventually(t, soon, "nobody watches any more",
		func() bool { return e.number(t, "SELECT count(*) FROM dblock_watchers") == 0 })
}

func history(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithEvents()), e.client(t, dblock.WithEvents())
	l := lock(t, a, "n", dblock.Metadata(map[string]string{"k": "v"}))
	unlock(t, l)
	if ev := e.told(t, b, "n", "granted", 1)[0]; ev.Token != l.Token() || ev.Metadata["k"] != "v" || ev.Host == "" ||
		ev.At.IsZero() {
		t.Errorf("%+v", ev)
	}
	e.told(t, b, "n", "released", 1)
	lost := lock(t, a, "n")
	e.end(t, e.session(t, "n"))
	next := granted(t, patience, locking(context.Background(), b, "n"))
	ended(t, soon, lost, dblock.ErrLost)
	if ev := e.told(t, b, "n", "lost", 1)[0]; ev.Token != lost.Token() || ev.Detail == "" {
		t.Errorf("%+v", ev)
	}
	e.told(t, b, "n", "granted", 3)
	unlock(t, next)
	all, err := a.LockAll(t.Context(), []string{"x", "y"}, dblock.Shared())
	require.NoError(t, err)
	require.NoError(t, all.Unlock(t.Context()))
	e.told(t, b, "y", "released", 1)
	last := int64(0)
	for event, err := range b.Events(t.Context(), inspect.EventFilter{}) {
		if err != nil || event.ID <= last {
			t.Errorf("%+v after %d, %v", event, last, err)
		}
		last = event.ID
	}
	silent := e.client(t)
	unlock(t, lock(t, silent, "quiet"))
	e.told(t, silent, "quiet", "granted", 0)
}

func recordFenced(t *testing.T, e *env) {
	a := e.client(t)
	l := lock(t, a, "n")
	require.NoError(t, l.Record(t.Context(), "note", "mine"))
	again, err := a.Lock(l.Context(), "n") // to have entered it again is no obstacle
	require.NoError(t, err)
	require.NoError(t, again.Record(t.Context(), "other", ""))
	unlock(t, again)
	is(t, l.Record(t.Context(), "no spaces", ""), dblock.ErrInvalidOption)
	is(t, l.Record(t.Context(), "", ""), dblock.ErrInvalidOption)
	e.exec(t, "UPDATE dblock_locks SET token = token + 1, first_token = first_token + 1, last_token = last_token + "+
		"1 WHERE name = 'n'")
	is(t, l.Record(t.Context(), "note", "not mine"), dblock.ErrLost)
	if ev := e.told(t, a, "n", "note", 1)[0]; ev.Detail != "mine" || ev.Token != l.Token() {
		t.Errorf("%+v", ev)
	}
	r := lock(t, a, "r", dblock.Shared())
	require.NoError(t, r.Record(t.Context(), "note", "a reader's"))
	unlock(t, r)
	is(t, r.Record(t.Context(), "note", "too late"), dblock.ErrNotHeld)
}

func raise(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	high := l.Token() + time.Hour.Microseconds()
	if got, err := raiseToken(t.Context(), l, high); got != high || err != nil || l.Token() != high {
		t.Errorf("%d, %v; the lock says %d, want %d", got, err, l.Token(), high)
	}
	if got, err := raiseToken(t.Context(), l, 1); got != high || err != nil {
		t.Errorf("lowered to %d, %v", got, err)
	}
	unlock(t, l)
	next := lock(t, b, "n")
	rising(t, high, next.Token())
	unlock(t, next)
	is(t, assert.ErrOf(raiseToken(t.Context(), next, high+9)), dblock.ErrNotHeld)
	r := lock(t, a, "n", dblock.Shared())
	is(t, assert.ErrOf(raiseToken(t.Context(), r, high)), dblock.ErrUnsupported)
	unlock(t, r)
	e.idle(t, "n")
}

func until(t *testing.T, e *env) {
	const lease = 20 * time.Second
	a := e.client(t)
	l, leased := lock(t, a, "n"), lock(t, a, "m", dblock.Lease(lease))
	first := l.Until()
	if left := time.Until(first); left <= 0 || left > longTTL {
		t.Errorf("%v left", left)
	}
	if left := time.Until(leased.Until()); left > lease {
		t.Errorf("%v left of %v", left, lease)
	}
	e.advance(t, longTTL+time.Second) // heartbeats have moved it on by at least as much
	live(t, l)
	if left := time.Until(l.Until()); left <= 0 || left > longTTL {
		t.Errorf("%v left", left)
	}
	if !leased.Until().IsZero() {
		t.Errorf("until %v after the lease", leased.Until())
	}
	unlock(t, l)
	if !l.Until().IsZero() {
		t.Errorf("until %v after Unlock", l.Until())
	}
}
