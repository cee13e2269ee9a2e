package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/reaper"
)

func TestEventsComeBackAsTheyWereWritten(t *testing.T) {
	f := newFixture(t)
	var all []driver.Event
	for i := range 6 {
		all = append(all, driver.Event{
			Name: fmt.Sprintf("n%d", i%2), Kind: []string{"granted", "released", "lost"}[i%3], Token: int64(i), Session: "s",
			Host: "h", Thread: "t", Detail: "d", Metadata: "{}",
		})
	}
	if err := errors.Join(f.Record(t.Context(), all[:2]), f.Record(t.Context(), nil), f.Record(t.Context(), all[2:])); err != nil {
		t.Fatal(err)
	}
	tokens := func(name string, kinds []string, after int64, limit int) (tokens []int64) {
		t.Helper()
		events, err := f.Events(t.Context(), driver.EventFilter{Name: name, Kinds: kinds, After: after}, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			want := all[ev.Token]
			want.ID, want.At = ev.ID, ev.At
			if ev != want || time.Since(ev.At) > time.Minute {
				t.Errorf("%+v, want %+v", ev, want)
			}
			tokens = append(tokens, ev.Token)
		}
		return tokens
	}
	for _, c := range []struct {
		name  string
		kinds []string
		after int64
		limit int
		want  []int64
	}{
		{"", nil, 0, 10, []int64{0, 1, 2, 3, 4, 5}},
		{"", nil, 2, 3, []int64{2, 3, 4}},
		{"n1", nil, 0, 10, []int64{1, 3, 5}},
		{"n1", []string{}, 2, 1, []int64{3}},
		{"", []string{"granted", "lost"}, 0, 10, []int64{0, 2, 3, 5}},
		{"n0", []string{"lost"}, 0, 10, []int64{2}},
		{"none", nil, 0, 10, nil},
	} {
		if got := tokens(c.name, c.kinds, c.after, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q, after %d, at most %d: %v, want %v", c.name, c.kinds, c.after, c.limit, got, c.want)
		}
	}
}

func TestAskReachesEveryHolderAndIsWrittenDown(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	ask := func(want int) {
		t.Helper()
		if n, err := f.ask("n", "please", driver.Event{Name: "n", Kind: "asked"}); err != nil || n != want {
			t.Fatalf("%d holders, %v; want %d", n, err, want)
		}
	}
	asked := func(session string) (reasons []string) {
		t.Helper()
		claims, err := f.Orphans(t.Context(), session, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claims {
			reasons = append(reasons, c.Asked)
		}
		return reasons
	}
	ask(0)
	if n := f.number("SELECT count(*) FROM dblock_events"); n != 0 {
		t.Fatal("an event without a holder")
	}
	one, two := shared("n", a, 1, 2), shared("n", b, 1, 2)
	first, second := f.share(one), f.share(two)
	la, lb := f.listen(a), f.listen(b)
	ask(2)
	la.hears(one.Attempt)
	lb.hears(two.Attempt)
	if got := append(asked(a), asked(b)...); !slices.Equal(got, []string{"please", "please"}) {
		t.Fatalf("%q", got)
	}
	f.release(first, false)
	f.release(second, false)
	whole := request("n", a)
	held := f.share(whole)
	if got := asked(a); !slices.Equal(got, []string{""}) {
		t.Fatalf("%q was not asked of this one", got)
	}
	ask(1)
	la.hears(whole.Attempt)
	if got := asked(a); !slices.Equal(got, []string{"please"}) {
		t.Fatalf("%q", got)
	}
	f.enqueue("n", b)
	f.release(held, true)
	if got := asked(b); !slices.Equal(got, []string{""}) {
		t.Fatalf("the next holder is asked: %q", got)
	}
	if n := f.number("SELECT count(*) FROM dblock_events WHERE kind = 'asked'"); n != 2 {
		t.Fatalf("%d events", n)
	}
}

func TestAnnounceIsForTheHolderAndWakesThoseWhoWatch(t *testing.T) {
	f := newFixture(t)
	leader, observer := f.session(), f.session()
	other := open(t, f.path, "")
	if err := errors.Join(other.Watch(t.Context(), observer, "n", "w1"), f.Watch(t.Context(), observer, "n", "w2")); err != nil {
		t.Fatal(err)
	}
	l := f.listen(observer)
	held := f.take("n", leader)
	ev := driver.Event{Name: "n", Kind: "elected", Token: held.Token}
	if err := f.announce(held, ev); err != nil {
		t.Fatal(err)
	}
	l.hears("w1")
	l.hears("w2")
	stale := held
	stale.Token--
	if err := f.announce(stale, ev); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatal(err)
	}
	if err := f.announce(f.share(shared("m", leader, 1, 2)), ev); err != nil {
		t.Fatalf("by one of several: %v", err)
	}
	if n := f.number("SELECT count(*) FROM dblock_events"); n != 2 {
		t.Fatalf("%d events", n)
	}
}

func TestARunIsBegunOnceInItsSlot(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	const interval = 24 * time.Hour
	began := time.Now()
	begin := func(session string, token int64, again, want bool) driver.Run {
		t.Helper()
		var retry driver.Retry
		if again {
			retry.Most = 9
		}
		r, ours, err := f.BeginRun(t.Context(), driver.Run{Name: "job", Token: token, Session: session, Host: "h", Thread: "t"}, driver.Slot{Length: interval}, retry)
		if err != nil || ours != want {
			t.Fatalf("%+v, %v, %v", r, ours, err)
		}
		if time.Since(r.Seen).Abs() > time.Minute {
			t.Errorf("seen at %v", r.Seen)
		}
		r.Seen = time.Time{}
		return r
	}
	r := begin(a, 1, false, true)
	if r.Slot*interval.Microseconds() > began.UnixMicro() || !r.SlotEnds.After(began) || r.Tries != 1 || r.Session != a || !r.Ended.IsZero() || r.Failed {
		t.Fatalf("%+v", r)
	}
	if again := begin(a, 1, false, true); again != r {
		t.Fatalf("%+v, and then %+v", r, again)
	}
	if there := begin(b, 2, true, false); there != r {
		t.Fatalf("%+v is there, not %+v", r, there)
	}
	end := func(token int64, failed bool, want error) {
		t.Helper()
		err := f.EndRun(t.Context(), driver.Run{Name: "job", Slot: r.Slot, Token: token, Failed: failed, Detail: "why"})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	end(2, true, driver.ErrNotHeld)
	end(1, true, nil)
	if there := begin(b, 2, false, false); !there.Failed || there.Detail != "why" || there.Ended.IsZero() {
		t.Fatalf("%+v", there)
	}
	if second := begin(b, 2, true, true); second.Tries != 2 || second.Token != 2 || second.Session != b || second.Failed || !second.Ended.IsZero() || second.Detail != "" {
		t.Fatalf("%+v", second)
	}
	end(1, false, driver.ErrNotHeld)
	f.lapse(b) // it has not ended, and never will
	if third := begin(a, 3, true, true); third.Tries != 3 || third.Failed {
		t.Fatalf("%+v", third)
	}
	end(3, false, nil)
	begin(b, 4, true, false)

	f.exec("INSERT INTO dblock_runs SELECT name, slot - 1, 9, session_id, host, thread, began_at - 1, ended_at, failed, detail, tries, 1 FROM dblock_runs")
	runs, err := f.Runs(t.Context(), "job", time.Time{}, 10)
	if err != nil || len(runs) != 2 || runs[0].Slot != r.Slot || runs[0].Token != 3 || runs[1].Token != 9 {
		t.Fatalf("%+v, %v", runs, err)
	}
	if runs, err = f.Runs(t.Context(), "job", runs[0].Began, 1); err != nil || len(runs) != 1 || runs[0].Token != 9 {
		t.Fatalf("%+v, %v", runs, err)
	}
}

func TestRecordsAreDeletedWhenTheyAreTooOld(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	old, fresh := driver.Event{Name: "old", Kind: "x"}, driver.Event{Name: "fresh", Kind: "x"}
	if err := f.Record(t.Context(), []driver.Event{old, old, old, fresh}); err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE dblock_events SET at = 1 WHERE name = 'old'")
	for slot, run := range []struct {
		session string
		slot    int64 // when its slot was over
		ended   any
	}{
		{s, 1, 1}, {dead, 1, nil}, // over
		{s, 1, nil}, {s, 1, time.Now().UnixMicro()}, {s, time.Now().Add(time.Hour).UnixMicro(), 1}, // not
	} {
		f.exec("INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, slot_ends) VALUES ('job', ?, 1, ?, '', '', 1, ?, ?)",
			slot, run.session, run.ended, run.slot)
	}
	f.lapse(dead)
	if n, err := f.PurgeRecords(t.Context(), time.Hour, 1); err != nil || n != 2 {
		t.Fatalf("%d, %v: want one event and one run", n, err)
	}
	report, err := reaper.Sweep(t.Context(), f.Backend, reaper.History(time.Hour), reaper.Batch(1))
	if err != nil || report.Deleted != 3 {
		t.Fatalf("%v, %v", report, err)
	}
	if events, runs := f.number("SELECT count(*) FROM dblock_events"), f.number("SELECT count(*) FROM dblock_runs"); events != 1 || runs != 3 {
		t.Fatalf("%d events and %d runs are left", events, runs)
	}
}

func TestAnIncarnationIsAsOldAsTheDataThatIsKnown(t *testing.T) {
	f := newFixture(t)
	incarnation := func(renew bool, floor int64) driver.Incarnation {
		t.Helper()
		i, err := f.Incarnation(t.Context(), renew, floor)
		if err != nil || i.Age < 0 {
			t.Fatalf("%+v, %v", i, err)
		}
		return i
	}
	if i := incarnation(false, 7); !i.Fresh || i.Floor != 7 || i.Age > time.Minute {
		t.Fatalf("%+v", i)
	}
	f.exec("UPDATE dblock_incarnation SET since = since - 3600000000")
	if i := incarnation(false, 9); i.Fresh || i.Floor != 7 || i.Age < time.Hour {
		t.Fatalf("%+v", i)
	}
	if i := incarnation(true, 5); i.Fresh || i.Floor != 5 || i.Age > time.Minute {
		t.Fatalf("renewed: %+v", i)
	}
	if i := incarnation(true, 0); i.Floor != 0 {
		t.Fatalf("renewed by one who knows of no token: %+v", i)
	}
	held := f.take("n", f.session())
	if i := incarnation(false, -1); i.Floor < held.Token {
		t.Fatalf("the highest token is %d: %+v", held.Token, i)
	}
	ahead, err := f.raise(held, held.Token+time.Hour.Microseconds())
	if i := incarnation(false, -1); err != nil || i.Floor != ahead {
		t.Fatalf("the highest token is %d: %+v, %v", ahead, i, err)
	}
	if i := incarnation(false, 1); i.Floor != 0 {
		t.Fatalf("the question has changed something: %+v", i)
	}
}
