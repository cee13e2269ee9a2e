package mysql_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

func TestEventsComeBackAsTheyWereWritten(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		var all []driver.Event
		for i := range 6 {
			all = append(all, driver.Event{
				Name: fmt.Sprintf("n%d", i%2), Kind: []string{"granted", "released", "lost"}[i%3], Token: int64(i), Session: "s",
				Host: "hôte", Thread: "t", Detail: "d 'x'", Metadata: `{"k":"v"}`,
			})
		}
		must(t, a.Record(t.Context(), nil))
		must(t, a.Record(t.Context(), all[:2]))
		must(t, a.Record(t.Context(), all[2:]))
		var ids []int64
		for _, c := range []struct {
			name  string
			kinds []string
			after int // index of an event; 0: none
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
			after := int64(0)
			if c.after > 0 {
				after = ids[c.after-1]
			}
			events, err := a.Events(t.Context(), driver.EventFilter{Name: c.name, Kinds: c.kinds, After: after}, c.limit)
			must(t, err)
			var got []int64
			for _, event := range events {
				if len(ids) < 6 {
					ids = append(ids, event.ID)
				}
				want := all[event.Token]
				if want.ID, want.At = event.ID, event.At; event != want || time.Since(event.At).Abs() > time.Minute {
					t.Errorf("%+v, want %+v", event, want)
				}
				got = append(got, event.Token)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%+v: %v", c, got)
			}
		}
		if n, err := a.PurgeRecords(t.Context(), time.Hour, 10); err != nil || n != 0 {
			t.Fatal("purged too early", n, err)
		}
		s.exec(t, "UPDATE dblock_events SET at = 1 WHERE token < 4")
		for _, want := range []int{3, 1, 0} {
			if n, err := a.PurgeRecords(t.Context(), time.Hour, 3); err != nil || n != want {
				t.Fatal(n, err)
			}
		}
	})
}

func TestAskReachesEveryHolder(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		b, c := s.listen(t, s.open(t, nil)), s.listen(t, s.open(t, nil))
		if n, err := a.ask(t.Context(), "n", "why", driver.Event{Name: "n", Kind: "asked"}); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		asked := func(held driver.Held, of *ear) string {
			t.Helper()
			claims, err := a.Orphans(t.Context(), of.session, 10)
			must(t, err)
			i := slices.IndexFunc(claims, func(c driver.Attempt) bool { return c.Token == held.Token })
			return claims[i].Asked
		}
		first, second := b.share(t, b.reader("n")), c.share(t, c.reader("n"))
		b.wait(t, b.request("n"))
		b.sleeps(t, s) // between two statements they would miss what tells of no grant
		c.sleeps(t, s)
		if n, err := a.ask(t.Context(), "n", "let me in", driver.Event{Name: "n", Kind: "asked", Detail: "let me in"}); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		b.hint(t)
		c.hint(t)
		if asked(first, b) != "let me in" || asked(second, c) != "let me in" {
			t.Fatal("they do not know why")
		}
		must(t, errorOf(drivertest.Release(t.Context(), b, first, true)))
		next, err := sole(drivertest.Release(t.Context(), c, second, true))
		must(t, err)
		whole := driver.Held{Name: "n", Session: b.session, Token: next.Grant.Token}
		if got := asked(whole, b); got != "" {
			t.Fatalf("the next was asked %q", got)
		}
		if n, err := a.ask(t.Context(), "n", "again", driver.Event{Name: "n", Kind: "asked"}); err != nil || n != 1 || asked(whole, b) != "again" {
			t.Fatal(n, err)
		}
		c.wait(t, c.request("n"))
		next, err = sole(drivertest.Release(t.Context(), b, whole, true))
		must(t, err)
		whole = driver.Held{Name: "n", Session: c.session, Token: next.Grant.Token}
		if got := asked(whole, c); got != "" {
			t.Fatalf("the next was asked %q", got)
		}
		if n, err := a.ask(t.Context(), "n", "again", driver.Event{Name: "n", Kind: "asked"}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		must(t, errorOf(drivertest.Release(t.Context(), c, whole, false)))
		if got := asked(b.take(t, "n"), b); got != "" {
			t.Fatalf("the next was asked %q", got)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_events"); n != 3 {
			t.Fatalf("%d events, want one of each time that somebody was there", n)
		}
		is(t, b.end(t), context.Canceled)
		is(t, c.end(t), context.Canceled)
	})
}

// hint waits until the listener hears of something.
func (e *ear) hint(t *testing.T) {
	t.Helper()
	select {
	case <-e.wakes:
	case err := <-e.ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("nothing was heard")
	}
}

func TestThoseWhoWatchHearOfIt(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		b := s.listen(t, s.open(t, nil))
		held := a.take(t, "n")
		for range 2 {
			must(t, a.Watch(t.Context(), b.session, "n", "w"))
		}
		must(t, a.Watch(t.Context(), "nobody", "n", "v"))
		b.sleeps(t, s) // between two statements it would miss what tells of no grant
		must(t, a.Stir(t.Context(), "n"))
		b.hint(t)
		event := driver.Event{Name: "n", Kind: "elected", Token: held.Token}
		b.sleeps(t, s)
		must(t, a.announce(t.Context(), held, event))
		b.hint(t)
		wrong := held
		for range 2 {
			wrong.Token--
			is(t, a.announce(t.Context(), wrong, event), driver.ErrNotHeld)
		}
		wrong = held
		wrong.Shared = true
		is(t, a.announce(t.Context(), wrong, event), driver.ErrNotHeld)
		is(t, a.announce(t.Context(), driver.Held{Name: "m", Session: a.session, Token: held.Token}, event), driver.ErrNotHeld)
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_events"); n != 1 {
			t.Fatalf("%d events", n)
		}
		must(t, a.Unwatch(t.Context(), "n", "w"))
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_watchers"); n != 0 {
			t.Fatalf("%d watch", n)
		}
		is(t, b.end(t), context.Canceled)
	})
}

// sameRun compares runs that were seen at two moments.
func sameRun(a, b driver.Run) bool { a.Seen = b.Seen; return a == b }

func TestARunIsBegunOnceInItsSlot(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		const interval = 24 * time.Hour * 365 * 60 // one slot for the whole test, whenever it runs
		first := driver.Run{Name: "j", Token: 1, Session: a.session, Host: "h", Thread: "t"}
		run, claimed, err := a.BeginRun(t.Context(), first, driver.Slot{Length: interval}, driver.Retry{})
		if err != nil || !claimed || run.Tries != 1 || run.Slot != time.Now().UnixMicro()/interval.Microseconds() || !run.Ended.IsZero() ||
			run.SlotEnds.UnixMicro() != (run.Slot+1)*interval.Microseconds() || time.Since(run.Began).Abs() > time.Minute {
			t.Fatalf("%+v %v %v", run, claimed, err)
		}
		if again, claimed, err := a.BeginRun(t.Context(), first, driver.Slot{Length: interval}, driver.Retry{}); err != nil || !claimed || again.Seen.Before(run.Seen) || !sameRun(again, run) {
			t.Fatalf("its own claim: %+v %v %v", again, claimed, err)
		}
		second := driver.Run{Name: "j", Token: 2, Session: b.session, Host: "h", Thread: "u"}
		for _, retry := range []driver.Retry{{}, {Most: 9}} {
			if got, claimed, err := b.BeginRun(t.Context(), second, driver.Slot{Length: interval}, retry); err != nil || claimed || !sameRun(got, run) {
				t.Fatalf("a run that goes on: %+v %v %v", got, claimed, err)
			}
		}
		s.expire(t, a)
		if _, claimed, err := b.BeginRun(t.Context(), second, driver.Slot{Length: interval}, driver.Retry{}); err != nil || claimed {
			t.Fatal("tried again though nobody wants that", err)
		}
		got, claimed, err := b.BeginRun(t.Context(), second, driver.Slot{Length: interval}, driver.Retry{Most: 9})
		if err != nil || !claimed || got.Tries != 2 || got.Token != 2 || got.Session != b.session || got.Thread != "u" {
			t.Fatalf("%+v %v %v", got, claimed, err)
		}
		is(t, a.EndRun(t.Context(), run), driver.ErrNotHeld)
		got.Failed, got.Detail = true, "broken"
		for range 2 {
			must(t, b.EndRun(t.Context(), got))
		}
		third := driver.Run{Name: "j", Token: 3, Session: b.session}
		if got, claimed, err = b.BeginRun(t.Context(), third, driver.Slot{Length: interval}, driver.Retry{Most: 9}); err != nil || !claimed || got.Tries != 3 || got.Failed || got.Detail != "" || !got.Ended.IsZero() {
			t.Fatalf("%+v %v %v", got, claimed, err)
		}
		must(t, b.EndRun(t.Context(), got))
		if got, claimed, err = b.BeginRun(t.Context(), second, driver.Slot{Length: interval}, driver.Retry{Most: 9}); err != nil || claimed || got.Token != 3 || got.Ended.IsZero() {
			t.Fatalf("one that succeeded: %+v %v %v", got, claimed, err)
		}
		for i := range 3 {
			s.exec(t, "INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, detail, slot_ends) VALUES ('j', ?, 9, '', '', '', ?, 20, '', 3)", -1-i, 10-i)
		}
		runs, err := a.Runs(t.Context(), "j", time.Time{}, 2)
		if err != nil || len(runs) != 2 || !sameRun(runs[0], got) || runs[1].Slot != -1 {
			t.Fatalf("%+v %v", runs, err)
		}
		runs, err = a.Runs(t.Context(), "j", time.UnixMicro(10), 10)
		if err != nil || len(runs) != 2 || runs[0].Slot != -2 || runs[1].Slot != -3 {
			t.Fatalf("%+v %v", runs, err)
		}
		if n, err := a.PurgeRecords(t.Context(), time.Hour, 2); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		if n, err := a.PurgeRecords(t.Context(), time.Hour, 2); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	})
}

func TestOfManyOneBeginsARun(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const interval = 24 * time.Hour * 365 * 60
		actors := []actor{s.actor(t), s.actor(t), s.actor(t), s.actor(t)}
		for round := range 10 {
			results := make(chan bool, len(actors))
			for i, a := range actors {
				go func() {
					_, claimed, err := retried(func() (driver.Run, bool, error) {
						return a.BeginRun(t.Context(), driver.Run{Name: fmt.Sprint(round), Token: int64(i + 1), Session: a.session}, driver.Slot{Length: interval}, driver.Retry{Most: 9})
					})
					if err != nil {
						t.Error(err)
					}
					results <- claimed
				}()
			}
			claims := 0
			for range actors {
				if <-results {
					claims++
				}
			}
			if claims != 1 {
				t.Fatalf("%d began it", claims)
			}
		}
	})
}

// Broken by a claim that does not look whose run it takes over.
func TestARunThatFailsWhileTwoLookAtItIsClaimedOnce(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const interval = 24 * time.Hour * 365 * 60
		a, c := s.actor(t), s.actor(t)
		proxy := dbtest.NewProxy(t, s.Addr(t))
		b := actor{Backend: server{s.Through(t, proxy), s.pool}.engine(t), session: id()}
		must(t, b.OpenSession(t.Context(), driver.Session{ID: b.session, TTL: ttl}))
		begin := func(a actor, token int64) <-chan outcome[bool] {
			return start(t, func(ctx context.Context) (bool, error) {
				_, claimed, err := a.BeginRun(ctx, driver.Run{Name: "j", Token: token, Session: a.session}, driver.Slot{Length: interval}, driver.Retry{Most: 9})
				return claimed, err
			})
		}
		if got := <-begin(a, 1); got.err != nil || !got.value {
			t.Fatalf("%+v", got)
		}
		s.expire(t, a)
		claiming, claim := stopAt(t, proxy, "-- name: TakeRun", 1)
		second := begin(b, 2)
		soon(t, "the run to be claimed", claiming)
		if got := <-begin(c, 3); got.err != nil || !got.value {
			t.Fatalf("%+v, want claimed", got)
		}
		claim()
		if got := <-second; got.err != nil || got.value {
			t.Fatalf("%+v: claimed twice", got)
		}
	})
}

func TestAnIncarnationIsAsOldAsTheDataThatIsKnown(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		in, err := a.Incarnation(t.Context(), false, 7)
		if err != nil || !in.Fresh || in.Floor != 7 || in.Age > time.Minute {
			t.Fatalf("%+v %v", in, err)
		}
		s.exec(t, "UPDATE dblock_incarnation SET since = 0")
		for _, floor := range []int64{0, 9} {
			if in, err = a.Incarnation(t.Context(), false, floor); err != nil || in.Fresh || in.Floor != 7 || in.Age < time.Hour {
				t.Fatalf("%+v %v", in, err)
			}
		}
		s.exec(t, "UPDATE dblock_locks SET token = 1")
		a.take(t, "n")
		s.exec(t, "UPDATE dblock_locks SET token = ?", farAhead)
		if in, err = a.Incarnation(t.Context(), false, -1); err != nil || in.Fresh || in.Floor != farAhead || in.Age < time.Hour {
			t.Fatalf("%+v %v", in, err)
		}
		s.exec(t, "DELETE FROM dblock_locks")
		if in, err = a.Incarnation(t.Context(), false, -1); err != nil || in.Floor < time.Now().Add(-time.Hour).UnixMicro() {
			t.Fatalf("%+v %v", in, err)
		}
		for _, floor := range []int64{5, 0} {
			if in, err = a.Incarnation(t.Context(), true, floor); err != nil || in.Fresh || in.Floor != floor || in.Age > time.Minute {
				t.Fatalf("%+v %v", in, err)
			}
		}
	})
}

func TestOfTwoWhoClaimAMomentOneRunsIt(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		moment := s.number(t, "SELECT now_us FROM dblock_clock")
		claiming := s.transaction(t, `INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, detail, slot_ends)
			VALUES ('j', ?, 1, 'x', '', '', ?, '', ?)`, moment, moment, moment)
		second := start(t, func(ctx context.Context) (bool, error) {
			_, claimed, err := a.BeginRun(ctx, driver.Run{Name: "j", Token: 2, Session: a.session}, driver.Slot{Moment: moment}, driver.Retry{})
			return claimed, err
		})
		time.Sleep(100 * time.Millisecond) // it waits for the key, or comes after the commit: either way there is one
		must(t, claiming.Commit())
		if got := <-second; got.err != nil || got.value {
			t.Errorf("%+v, want the run of the other", got)
		}
	})
}
