package sqlite_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

func TestDescribeTellsAllAboutNames(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	whole := request("b", a)
	whole.Metadata, whole.Lease, whole.MinHold = `{"k":"v"}`, time.Hour, time.Hour
	held := f.share(whole)
	waiter := request("b", b)
	waiter.Metadata = "{}"
	f.queue(waiter)
	one, two := shared("a", a, 2, 5), shared("a", b, 1, 5)
	f.share(one)
	last := f.share(two)
	first, second := shared("a", b, 4, 5), request("a", a)
	f.queue(first)
	f.queue(second)
	f.exec("UPDATE dblock_shares SET asked = 'why'")
	f.release(f.take("idle", a), false)

	details, err := f.Describe(t.Context(), []string{"idle", "none", "b", "a"}, driver.AllWaiters)
	if err != nil || len(details) != 3 || details[0].Name != "a" || details[1].Name != "b" || details[2].Name != "idle" {
		t.Fatalf("%+v, %v", details, err)
	}
	d := details[0]
	if d.Token != last.Token || d.Capacity != 5 || d.Rest != 0 || len(d.Holders) != 2 || len(d.Waiters) != 2 {
		t.Fatalf("%+v", d)
	}
	for i, r := range []driver.Request{one, two} {
		h := d.Holders[i]
		if h.Attempt != r.Attempt || h.Units != r.Units || h.Session != r.Session || h.Asked != "why" || !h.Grant.Contended || h.App != "test" {
			t.Errorf("holder %d: %+v", i, h)
		}
	}
	for i, r := range []driver.Request{first, second} {
		w := d.Waiters[i]
		if w.Attempt != r.Attempt || w.Units != r.Units || w.Grant.Token != 0 || w.Left <= 59*time.Minute || time.Since(w.Since) > time.Minute {
			t.Errorf("waiter %d: %+v", i, w)
		}
	}
	d = details[1]
	if len(d.Holders) != 1 || d.Rest <= 59*time.Minute || len(d.Waiters) != 1 || d.Waiters[0].Metadata != "{}" {
		t.Fatalf("%+v", d)
	}
	if h := d.Holders[0]; h.Grant.Token != held.Token || h.Grant.Lease <= 59*time.Minute || h.Metadata != whole.Metadata || h.PID != 1 || h.Units != 0 {
		t.Errorf("%+v", h)
	}
	if d = details[2]; d.Holders != nil || d.Waiters != nil || d.Capacity != 0 || d.Token == 0 {
		t.Errorf("%+v", d)
	}
	if details, err = f.Describe(t.Context(), nil, 1); err != nil || len(details) != 0 {
		t.Fatalf("of nothing: %+v, %v", details, err)
	}
}

func TestNamesAreThoseThatMatchInTheirOrder(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	for _, name := range []string{"a", "a/1", "a/2", "b", "%", "a\u00ff", "a\u0100"} {
		f.take(name, a)
	}
	elsewhere := shared("a/3", b, 1, 2)
	elsewhere.Host = "elsewhere"
	f.share(elsewhere)
	f.release(f.take("a/0", a), false)
	f.exec("UPDATE dblock_locks SET acquired_at = 1 WHERE name IN ('a/1', 'a/0')")
	for what, c := range map[string]struct {
		filter driver.Filter
		after  string
		limit  int
		want   []string
	}{
		"all":               {driver.Filter{}, "", 100, []string{"%", "a", "a/1", "a/2", "a/3", "a\u00ff", "a\u0100", "b"}},
		"a page":            {driver.Filter{}, "a/1", 3, []string{"a/2", "a/3", "a\u00ff"}},
		"a prefix":          {driver.Filter{Prefix: "a/"}, "", 100, []string{"a/1", "a/2", "a/3"}},
		"after a prefix":    {driver.Filter{Prefix: "a/"}, "a/1", 100, []string{"a/2", "a/3"}},
		"before a prefix":   {driver.Filter{Prefix: "a/"}, "a", 1, []string{"a/1"}},
		"past a prefix":     {driver.Filter{Prefix: "a/"}, "b", 1, nil},
		"a name itself":     {driver.Filter{Prefix: "a/2"}, "", 1, []string{"a/2"}},
		"no pattern":        {driver.Filter{Prefix: "%"}, "", 100, []string{"%"}},
		"half a letter":     {driver.Filter{Prefix: "a\xc3"}, "", 100, []string{"a\u00ff"}},
		"idle":              {driver.Filter{Prefix: "a/", Idle: true}, "", 2, []string{"a/0", "a/1"}},
		"a host":            {driver.Filter{Host: "elsewhere"}, "", 100, []string{"a/3"}},
		"older":             {driver.Filter{Older: time.Hour, Idle: true}, "", 100, []string{"a/1"}},
		"older, and a host": {driver.Filter{Older: time.Hour, Host: "elsewhere"}, "", 100, nil},
	} {
		c.filter.After = c.after
		if names, err := f.Names(t.Context(), c.filter, c.limit); err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s: %q, %v; want %q", what, names, err, c.want)
		}
	}
}

func TestAWatchEndsWithItsSession(t *testing.T) {
	f := newFixture(t)
	a, b, dead := f.session(), f.session(), f.session()
	watch := func(session, id string) {
		t.Helper()
		if err := f.Watch(t.Context(), session, "n", id); err != nil {
			t.Fatal(err)
		}
	}
	watched := func(want int64) {
		t.Helper()
		if n := f.number("SELECT count(*) FROM dblock_watchers"); n != want {
			t.Fatalf("%d watchers, want %d", n, want)
		}
	}
	watch(a, "1")
	watch(a, "1") // a statement may be sent twice
	watch(b, "2")
	watch(dead, "3")
	watched(3)
	if err := f.Unwatch(t.Context(), "n", "1"); err != nil {
		t.Fatal(err)
	}
	watched(2)
	if err := f.EndSession(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	watched(1)
	watch(b, "4") // too late
	watched(1)
	f.lapse(dead)
	f.expire(dead, true)
	if err := f.Stir(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Forget(t.Context(), 0, 10); err != nil || n != 1 {
		t.Fatalf("%d forgotten, %v", n, err)
	}
	watched(0)
}

func TestStirIsHeardByAllWhoWatchInAnyProcess(t *testing.T) {
	f := newFixture(t)
	f.inboxless()
	s, distant := f.session(), f.session()
	near, far := f.listen(s), f.listen(distant)
	if err := errors.Join(f.Watch(t.Context(), s, "n", "near"), f.Watch(t.Context(), distant, "n", "far")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Stir(t.Context(), "n"), f.Stir(t.Context(), "another")); err != nil {
		t.Fatal(err)
	}
	near.hears("near")
	far.hears("far")
	// What another process does is not rung here.
	f.exec("UPDATE dblock_heartbeats SET grants = grants + 1 WHERE session_id = ?", s)
	near.hears("")
}
