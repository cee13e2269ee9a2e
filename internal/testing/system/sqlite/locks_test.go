package sqlite_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

func TestTakeIsRefusedWhileSomebodyHoldsTheNameOrWaitsForIt(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.session(), f.session(), f.session()
	f.take("n", a)
	refused := func(when string) {
		t.Helper()
		if grant, taken, err := f.Take(t.Context(), request("n", c)); err != nil || taken || grant != (driver.Grant{}) {
			t.Fatalf("take %s: %+v, %v, %v", when, grant, taken, err)
		}
	}
	refused("while held")
	f.enqueue("n", b)
	f.exec("UPDATE dblock_locks SET session_id = NULL")
	refused("while waited for")
	if _, outcome, err := f.Join(t.Context(), request("n", c)); err != nil || outcome != driver.Queued {
		t.Fatalf("enqueue while waited for: %v, %v", outcome, err)
	}
}

func TestNamesAreComparedByteForByte(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	names := []string{"a", "A", "a ", " a", "á", "a\u0301", "1", "01", "1.0", "2024-01-02", "%", "_", "😀"}
	for _, name := range names {
		f.take(name, s)
	}
	states, err := f.Look(t.Context(), s, names)
	if err != nil || len(states) != len(names) {
		t.Fatalf("%d states of %d names: %v", len(states), len(names), err)
	}
	seen := map[string]bool{}
	for _, state := range states {
		seen[state.Name] = true
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("%q came back as another name", name)
		}
	}
}

func TestTokensRiseFromTheRowThoughTheClockWasSetBack(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	held := f.take("n", s)
	if now := time.Now().UnixMicro(); held.Token > now || held.Token < now-time.Minute.Microseconds() {
		t.Fatalf("the first token, %d, is not the clock, %d", held.Token, now)
	}
	f.release(held, false)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	want := func(by string, token int64) {
		t.Helper()
		if ahead++; token != ahead {
			t.Fatalf("token %d by %s, want %d", token, by, ahead)
		}
	}
	f.exec("UPDATE dblock_locks SET token = ?", ahead)
	held = f.take("n", s)
	want("take", held.Token)
	f.enqueue("n", s)
	next := f.release(held, true)
	want("hand-off", next.Grant.Token)
	r := request("n", f.session())
	r.Thread = s
	grant, ok, err := f.reenter(t.Context(), r)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want("re-entry", grant.Token)
	f.release(driver.Held{Name: "n", Session: r.Session, Token: grant.Token}, false)
	grant, outcome, err := f.Join(t.Context(), request("n", s))
	if err != nil || outcome != driver.Granted {
		t.Fatal(outcome, err)
	}
	want("enqueue", grant.Token)
}

func TestReleaseHandsOverInTheOrderOfTheQueue(t *testing.T) {
	f := newFixture(t)
	held := f.take("n", f.session())
	var attempts []string
	for range 5 {
		attempts = append(attempts, f.enqueue("n", f.session()))
	}
	for i, attempt := range attempts {
		next := f.release(held, i%2 == 0) // waiters are found although the caller did not know of them
		if next.Attempt != attempt || next.Grant.Token <= held.Token || next.Grant.Contended != (i < 4) {
			t.Fatalf("hand-off %d: %+v after token %d, want attempt %s", i, next, held.Token, attempt)
		}
		state := f.look(next.Session, "n")
		if state.Holder.Attempt != attempt || state.Waiters != 4-i || state.Holder.Thread != next.Session {
			t.Fatalf("after hand-off %d: %+v", i, state)
		}
		held = driver.Held{Name: "n", Session: next.Session, Token: next.Grant.Token}
	}
	if next := f.release(held, true); next != (driver.Handoff{}) {
		t.Fatalf("the last release went to %+v", next)
	}
	if state := f.look("", "n"); state.Holder != (driver.Holder{}) || state.Waiters != 0 {
		t.Fatalf("not free: %+v", state)
	}
}

func TestReleaseMatchesSessionAndToken(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	held := f.take("n", a)
	for _, wrong := range []driver.Held{
		{Name: "n", Session: b, Token: held.Token},
		{Name: "n", Session: a, Token: held.Token - 1},
		{Name: "n", Session: a},
		{Name: "m", Session: a, Token: held.Token},
		{Name: "n", Token: held.Token},
	} {
		for _, contended := range []bool{false, true} {
			if _, err := drivertest.Release(t.Context(), f, wrong, contended); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("release of %+v: %v", wrong, err)
			}
		}
	}
	f.release(held, false)
	if _, err := drivertest.Release(t.Context(), f, held, false); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("second release: %v", err)
	}
}

func TestADeadWaiterIsPassedOver(t *testing.T) {
	deaths := map[string]func(f *fixture, session string){
		"ended":              func(f *fixture, s string) { _ = f.EndSession(f.t.Context(), s) },
		"time over":          func(f *fixture, s string) { f.lapse(s) },
		"expired":            func(f *fixture, s string) { f.lapse(s); f.expire(s, true) },
		"dead, clock back":   func(f *fixture, s string) { f.exec("UPDATE dblock_sessions SET dead = true WHERE id = ?", s) },
		"rows taken away":    func(f *fixture, s string) { f.exec("DELETE FROM dblock_sessions WHERE id = ?", s) },
		"no heartbeat there": func(f *fixture, s string) { f.exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", s) },
	}
	for how, die := range deaths {
		t.Run(how, func(t *testing.T) {
			f := newFixture(t)
			held := f.take("n", f.session())
			gone := f.session()
			f.enqueue("n", gone)
			f.enqueue("n", gone)
			attempt := f.enqueue("n", f.session())
			f.enqueue("n", gone)
			die(f, gone)
			next := f.release(held, false)
			if next.Attempt != attempt || !next.Grant.Contended {
				t.Fatalf("handed to %+v", next)
			}
			if n := f.number("SELECT waiters FROM dblock_locks"); n != 1 || n != f.number("SELECT count(*) FROM dblock_waiters") {
				t.Fatalf("%d waiters counted", n)
			}
			if next := f.release(driver.Held{Name: "n", Session: next.Session, Token: next.Grant.Token}, true); next != (driver.Handoff{}) {
				t.Fatalf("handed to a dead one: %+v", next)
			}
			if n := f.number("SELECT count(*) FROM dblock_waiters"); n != 0 {
				t.Fatalf("%d dead ones are left in the queue", n)
			}
			f.take("n", f.session())
		})
	}
}

func TestLeaveUndoesAnAttemptWhateverBecameOfIt(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.session(), f.session(), f.session()
	r := request("n", a)
	if _, taken, err := f.Take(t.Context(), r); err != nil || !taken {
		t.Fatal(taken, err)
	}
	second, third := f.enqueue("n", b), f.enqueue("n", c)
	leave := func(session, attempt string) driver.Handoff {
		t.Helper()
		next, err := drivertest.Undo(t.Context(), f, session, "n", attempt)
		if err != nil {
			t.Fatal(err)
		}
		return f.only(next)
	}
	if next := leave(a, "nowhere"); next != (driver.Handoff{}) {
		t.Fatalf("an attempt that is nowhere handed over to %+v", next)
	}
	if next := leave(b, r.Attempt); next != (driver.Handoff{}) || f.look(b, "n").Holder.Session != a {
		t.Fatalf("another session gave the lock away to %+v", next)
	}
	if next := leave(a, second); next != (driver.Handoff{}) || f.look(b, "n").Waiters != 2 {
		t.Fatalf("another session gave up a place in the queue: %+v, %+v", next, f.look(b, "n"))
	}
	if next := leave(b, second); next != (driver.Handoff{}) || f.look(b, "n").Waiters != 1 || f.look(b, "n").Queued != nil {
		t.Fatalf("after leaving the queue: %+v, %+v", next, f.look(b, "n"))
	}
	if next := leave(a, r.Attempt); next.Attempt != third || next.Session != c {
		t.Fatalf("the lock went to %+v", next)
	}
	if next := leave(c, third); next != (driver.Handoff{}) || f.look(c, "n").Holder.Session != "" {
		t.Fatalf("the lock is not free: %+v", f.look(c, "n"))
	}
}

func TestReenterIsForTheSameOwnerInAnySession(t *testing.T) {
	f := newFixture(t)
	old, fresh := f.session(), f.session()
	held := f.take("n", old)
	f.enqueue("n", f.session())
	for _, r := range []driver.Request{
		{Name: "n", Host: "h", Thread: "x"}, {Name: "n", Host: "x", Thread: old}, {Name: "m", Host: "h", Thread: old},
	} {
		r.Session, r.Attempt = fresh, "x"
		if _, ok, err := f.reenter(t.Context(), r); ok || err != nil {
			t.Fatalf("%+v entered: %v", r, err)
		}
	}
	r := request("n", fresh)
	r.Thread, r.Lease, r.Metadata = old, time.Minute, "{}"
	grant, ok, err := f.reenter(t.Context(), r)
	if err != nil || !ok || grant.Token <= held.Token || !grant.Contended || grant.Lease != time.Minute {
		t.Fatalf("%+v, %v, %v after token %d", grant, ok, err, held.Token)
	}
	if h := f.look(fresh, "n").Holder; h.Session != fresh || h.Attempt != r.Attempt {
		t.Fatalf("holder %+v", h)
	}
	if _, err := drivertest.Release(t.Context(), f, held, false); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("the old incarnation released: %v", err)
	}
	f.release(driver.Held{Name: "n", Session: fresh, Token: grant.Token}, true)
	f.exec("UPDATE dblock_locks SET session_id = NULL, host = 'h', thread = 'y'")
	r = request("n", fresh)
	r.Thread = "y"
	if _, ok, err := f.reenter(t.Context(), r); ok || err != nil {
		t.Fatalf("entered a free lock: %v", err)
	}
}

func TestLookTellsWhatThereIs(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	if states, err := f.Look(t.Context(), a, nil); err != nil || len(states) != 0 {
		t.Fatalf("no names: %v, %v", states, err)
	}
	r := request("n", a)
	r.Lease = time.Minute
	grant, _, err := f.Take(t.Context(), r)
	if err != nil || grant.Lease != time.Minute {
		t.Fatal(grant, err)
	}
	mine := []string{f.enqueue("n", b), f.enqueue("n", b)}
	f.enqueue("n", a)
	states, err := f.Look(t.Context(), b, []string{"n", "none"})
	if err != nil || len(states) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	s := states[0]
	if s.Waiters != 3 || fmt.Sprint(s.Queued) != fmt.Sprint(mine) {
		t.Errorf("queue: %+v", s)
	}
	h := s.Holder
	if h.Session != a || h.Host != "h" || h.Thread != a || h.Attempt != r.Attempt || h.Grant.Token != grant.Token || !h.Grant.Contended {
		t.Errorf("holder: %+v", h)
	}
	if h.Left <= 0 || h.Left > time.Minute || h.Grant.Lease != h.Left || time.Since(h.Since) > time.Hour {
		t.Errorf("times: %+v", h)
	}
	f.exec("UPDATE dblock_locks SET expires_at = 1")
	if h = f.look(b, "n").Holder; h.Grant.Lease != -1 || h.Left > 0 {
		t.Errorf("a lease that is over: %+v", h)
	}
	f.exec("UPDATE dblock_locks SET expires_at = NULL")
	if h = f.look(b, "n").Holder; h.Grant.Lease != 0 || h.Left <= 50*time.Minute || h.Left > time.Hour {
		t.Errorf("without a lease: %+v", h)
	}
	f.exec("UPDATE dblock_sessions SET dead = true WHERE id = ?", a)
	if h = f.look(b, "n").Holder; h.Session != a || h.Left > 0 {
		t.Errorf("dead, with a heartbeat left: %+v", h)
	}
	f.exec("UPDATE dblock_sessions SET dead = false WHERE id = ?", a)
	f.lapse(a)
	if h = f.look(b, "n").Holder; h.Session != a || h.Left > 0 {
		t.Errorf("over its time: %+v", h)
	}
	f.exec("DELETE FROM dblock_sessions WHERE id = ?", a)
	if h = f.look(b, "n").Holder; h.Session != a || h.Left > 0 {
		t.Errorf("session row missing: %+v", h)
	}
}

func TestAFixedLeaseEndsWithTheSessionAlive(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	r := request("n", a)
	r.Lease = time.Hour
	if _, _, err := f.Take(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	attempt := f.enqueue("n", b)
	holder := f.look(b, "n").Holder
	holder.Grant.Lease = -1 // a State that is out of date, or lies
	if next, taken, err := drivertest.TakeOver(t.Context(), f, b, "n", holder); err != nil || taken {
		t.Fatalf("taken before its time: %+v, %v", next, err)
	}
	if overdue, err := f.Overdue(t.Context(), 10); err != nil || len(overdue) != 0 {
		t.Fatalf("%v, %v", overdue, err)
	}
	f.exec("UPDATE dblock_locks SET expires_at = 1")
	overdue, err := f.Overdue(t.Context(), 10)
	if err != nil || len(overdue) != 1 || overdue[0].Name != "n" || overdue[0].Holder.Session != a || overdue[0].Holder.Grant.Lease != -1 {
		t.Fatalf("%+v, %v", overdue, err)
	}
	next, taken, err := drivertest.TakeOver(t.Context(), f, a, "n", overdue[0].Holder)
	if err != nil || !taken || f.only(next).Attempt != attempt {
		t.Fatalf("%+v, %v, %v", next, taken, err)
	}
	f.heartbeat(a, true)
	if overdue, err := f.Overdue(t.Context(), 10); err != nil || len(overdue) != 0 {
		t.Fatalf("%v, %v", overdue, err)
	}
}

func TestALeaseOfAWaiterRunsFromItsGrant(t *testing.T) {
	f := newFixture(t)
	held := f.take("n", f.session())
	r := request("n", f.session())
	r.Lease, r.Metadata = time.Hour, `{"k":"v"}`
	if _, outcome, err := f.Join(t.Context(), r); err != nil || outcome != driver.Queued {
		t.Fatal(outcome, err)
	}
	f.exec("UPDATE dblock_waiters SET enqueued_at = 1")
	if next := f.release(held, true); next.Grant.Lease != time.Hour {
		t.Fatalf("%+v", next)
	}
	if h := f.look("", "n").Holder; h.Grant.Lease <= 59*time.Minute || h.Grant.Lease > time.Hour {
		t.Fatalf("%+v", h)
	}
	if n := f.number("SELECT count(*) FROM dblock_locks WHERE metadata = ?", r.Metadata); n != 1 {
		t.Fatal("the metadata did not come along")
	}
}
