package contracts

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var recording = []test{
	{"events come back as they were written, by name, kind and page", events},
	{"what a transition tells the history is written with it, or not at all", told},
	{"a slot is claimed once, and again where its run failed or died", runs},
	{"records that are too old are deleted, but for those that are still needed", oldRecords},
	{"an incarnation is as old as the data that is known", incarnation},
}

func events(w *world) {
	var all []protocol.Event
	for i := range 6 {
		all = append(all, protocol.Event{
			Name: fmt.Sprintf("n%d", i%2), Kind: []string{"granted", "released",
				"lost"}[i%3], Token: int64(i), Session: "s",
			Host: "hôte", Thread: "t", Detail: "d 'x'", Metadata: `{"k":"v"}`,
		})
	}
	w.must(errors.Join(w.Record(w.ctx, all[:2]), w.Record(w.ctx, nil), w.Record(w.ctx, all[2:])))
	var ids []int64
	list := func(f driver.EventFilter, limit int) (tokens []int64) {
		w.Helper()
		events, err := w.Events(w.ctx, f, limit)
		w.must(err)
		ids = ids[:0]
		for _, e := range events {
			want := all[e.Token]
			if want.ID, want.At = e.ID, e.At; e != want || !recent(e.At) {
				w.Errorf("%+v, want %+v", e, want)
			}
			tokens, ids = append(tokens, e.Token), append(ids, e.ID)
		}
		return tokens
	}
	list(driver.EventFilter{}, 10)
	id := append([]int64{0}, ids...) // of the nth event, from 1 on
	for _, c := range []struct {
		filter driver.EventFilter
		limit  int
		want   []int64
	}{
		{driver.EventFilter{}, 10, []int64{0, 1, 2, 3, 4, 5}},
		{driver.EventFilter{After: id[2]}, 3, []int64{2, 3, 4}},
		{driver.EventFilter{Before: id[3]}, 10, []int64{0, 1}},
		{driver.EventFilter{Newest: true}, 2, []int64{5, 4}},
		{driver.EventFilter{Newest: true, Before: id[5], Name: "n1"}, 2, []int64{3, 1}},
		{driver.EventFilter{Name: "n1"}, 10, []int64{1, 3, 5}},
		{driver.EventFilter{Name: "n1", Kinds: []string{}, After: id[2]}, 1, []int64{3}},
		{driver.EventFilter{Kinds: []string{"granted", "lost"}}, 10, []int64{0, 2, 3, 5}},
		{driver.EventFilter{Name: "n0", Kinds: []string{"lost"}}, 10, []int64{2}},
		{driver.EventFilter{Name: "none"}, 10, nil},
	} {
		if got := list(c.filter, c.limit); !slices.Equal(got, c.want) {
			w.Errorf("%+v, at most %d: %v, want %v", c.filter, c.limit, got, c.want)
		}
	}
	w.exec("UPDATE dblock_events SET at = 1 WHERE token < 4")
	for _, want := range []int{3, 1, 0} {
		if n, err := w.PurgeRecords(w.ctx, time.Hour, 3); err != nil || n != want {
			w.Errorf("%d were deleted, %v; want %d", n, err, want)
		}
	}
}

func told(w *world) {
	s := w.session()
	held := w.take(whole("n", s))
	announce := func(h protocol.Held, want error) {
		w.Helper()
		event := protocol.Event{Name: h.Name, Kind: "elected", Token: h.Token}
		_, err := driver.Do(w.ctx, w.Backend, protocol.Announce{Held: h, Event: event})
		assert.ErrorIs(w, err, want)
	}
	announce(held, nil)
	stale := held
	stale.Token--
	announce(stale, driver.ErrNotHeld)
	announce(protocol.Held{Name: "m", Session: s, Token: held.Token}, driver.ErrNotHeld)
	broken := protocol.Event{Name: "n", Kind: "broken", Token: held.Token, Session: s, Detail: "why"}
	for _, want := range []bool{true, false} {
		if _, taken, err := drivertest.Break(w.ctx, w.Backend, s, "n", protocol.Holder{Session: s,
			Grant: protocol.Grant{Token: held.Token}}, broken); err != nil || taken != want {
			w.Fatal(taken, err)
		}
	}
	list, err := w.Events(w.ctx, driver.EventFilter{}, 10)
	if err != nil || len(list) != 2 || list[0].Kind != "elected" || list[1].Kind != "broken" ||
		list[1].Detail != "why" {
		w.Errorf("%+v, %v", list, err)
	}
}

const insertRun = `
	INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, detail, slot_ends)
	VALUES ('job', ?, 9, ?, '', '', ?, ?, '', ?)`

func runs(w *world) {
	a, b := w.session(), w.session()
	const interval = 24 * time.Hour * 365 * 60 // one slot for the whole test, whenever it runs
	begin := func(session string, token int64, most int, want bool) driver.Run {
		w.Helper()
		r, ours, err := w.BeginRun(w.ctx, driver.Run{Name: "job", Token: token, Session: session, Host: "h",
			Thread: "t"},
			driver.Slot{Length: interval}, driver.Retry{Most: most})
		if err != nil || ours != want || !recent(r.Seen) {
			w.Fatalf("%+v, %v, %v", r, ours, err)
		}
		r.Seen = time.Time{}
		return r
	}
	first := begin(a, 1, 0, true)
	if first.Tries != 1 || first.Session != a || first.Host != "h" || first.Thread != "t" || !first.Ended.IsZero() ||
		first.Failed || !recent(first.Began) ||
		first.Slot != time.Now().UnixMicro()/interval.Microseconds() ||
		first.SlotEnds.UnixMicro() != (first.Slot+1)*interval.Microseconds() {
		w.Fatalf("%+v", first)
	}
	require.Equal(w, begin(a, 1, 0, true), first, "its own claim")
	for _, most := range []int{0, 9} {
		require.Equal(w, begin(b, 2, most, false), first, "a run that goes on")
	}
	end := func(token int64, failed bool, want error) {
		w.Helper()
		for range 2 { // a statement may be sent twice
			if err := w.EndRun(w.ctx, driver.Run{Name: "job", Slot: first.Slot, Token: token, Failed: failed,
				Detail: "why"}); !errors.Is(err, want) {
				w.Fatal(err)
			}
		}
	}
	end(2, true, driver.ErrNotHeld)
	end(1, true, nil)
	if there := begin(b, 2, 0, false); !there.Failed || there.Detail != "why" || there.Ended.IsZero() {
		w.Fatalf("%+v", there)
	}
	if second := begin(b, 2, 9, true); second.Tries != 2 || second.Token != 2 || second.Session != b ||
		second.Failed || !second.Ended.IsZero() || second.Detail != "" {
		w.Fatalf("%+v", second)
	}
	end(1, false, driver.ErrNotHeld)
	w.lapse(b) // it has not ended, and never will
	begin(a, 3, 0, false)
	if third := begin(a, 3, 9, true); third.Tries != 3 || third.Failed {
		w.Fatalf("%+v", third)
	}
	end(3, false, nil)
	if there := begin(b, 4, 9, false); there.Token != 3 || there.Failed || there.Ended.IsZero() {
		w.Fatalf("one that succeeded: %+v", there)
	}
	for i := range 3 {
		w.exec(insertRun, -1-i, "", 10-i, 20, 3)
	}
	for _, c := range []struct {
		before time.Time
		limit  int
		slots  []int64
	}{{time.Time{}, 2, []int64{first.Slot, -1}}, {time.UnixMicro(10), 10, []int64{-2, -3}}} {
		list, err := w.Runs(w.ctx, driver.RunFilter{Name: "job", Before: c.before}, c.limit)
		var slots []int64
		for _, r := range list {
			slots = append(slots, r.Slot)
		}
		if err != nil || !slices.Equal(slots, c.slots) {
			w.Errorf("%+v, %v; want %v", list, err, c.slots)
		}
	}
}

func oldRecords(w *world) {
	s, dead := w.session(), w.session()
	purged := func(limit, want int) {
		w.Helper()
		if n, err := w.PurgeRecords(w.ctx, time.Hour, limit); err != nil || n != want {
			w.Fatalf("%d were deleted, %v; want %d", n, err, want)
		}
	}
	// The events of the present cohort are kept.
	r := whole("n", s)
	r.Members = 3
	taken, err := driver.Do(w.ctx, w.Backend, protocol.Take{Request: r})
	w.must(err)
	grant := taken.Grant
	for token := grant.First - 1; token <= grant.Token+1; token++ {
		w.must(w.Record(w.ctx, []protocol.Event{{Name: "n", Kind: "note", Token: token, Session: s}}))
	}
	w.must(w.Record(w.ctx, []protocol.Event{{Name: "fresh", Kind: "note"}}))
	w.exec("UPDATE dblock_events SET at = 1 WHERE name = 'n'")
	purged(1, 1)
	purged(10, 1)
	// A run is over when its slot is over and it has ended, or its session has.
	hence := time.Now().Add(time.Hour).UnixMicro()
	for slot, run := range []struct {
		session string
		ends    int64 // of its slot
		ended   any
	}{
		{s, 1, 1}, {dead, 1, nil},
		{s, 1, nil}, {s, 1, time.Now().UnixMicro()}, {s, hence, 1},
	} {
		w.exec(insertRun, slot, run.session, 1, run.ended, run.ends)
	}
	w.lapse(dead)
	purged(1, 1)
	purged(10, 1)
	runs, events := w.number("SELECT count(*) FROM dblock_runs"), w.number("SELECT count(*) FROM dblock_events")
	if runs != 3 || events != 4 {
		w.Errorf("%d runs and %d events are left", runs, events)
	}
}

func incarnation(w *world) {
	is := func(renew bool, floor int64) driver.Incarnation {
		w.Helper()
		i, err := w.Incarnation(w.ctx, renew, floor)
		if err != nil || i.Age < 0 {
			w.Fatalf("%+v, %v", i, err)
		}
		return i
	}
	if i := is(false, 7); !i.Fresh || i.Floor != 7 || i.Age > time.Minute {
		w.Fatalf("%+v", i)
	}
	w.exec("UPDATE dblock_incarnation SET since = since - 3600000000")
	for _, floor := range []int64{0, 9} {
		if i := is(false, floor); i.Fresh || i.Floor != 7 || i.Age < time.Hour {
			w.Errorf("%+v", i)
		}
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	w.take(whole("n", w.session()))
	w.exec("UPDATE dblock_locks SET token = ?", ahead)
	if i := is(false, -1); i.Fresh || i.Floor != ahead || i.Age < time.Hour {
		w.Errorf("the highest token is %d: %+v", ahead, i)
	}
	w.exec("DELETE FROM dblock_locks")
	if i := is(false, -1); i.Floor < time.Now().Add(-time.Minute).UnixMicro() {
		w.Errorf("no floor below the clock: %+v", i)
	}
	for _, floor := range []int64{5, 0} {
		if i := is(true, floor); i.Fresh || i.Floor != floor || i.Age > time.Minute {
			w.Errorf("renewed with %d: %+v", floor, i)
		}
	}
}
