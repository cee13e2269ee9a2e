package sqlite_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// rested lets the rest of a name be over.
func (f *fixture) rested(name string) {
	f.exec("UPDATE dblock_locks SET rests_until = 1 WHERE name = ?", name)
}

func TestNobodyGetsANameThatRests(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	r := request("n", dead)
	r.MinHold = time.Hour
	held := f.share(r)
	waiter := request("n", s)
	waiter.MinHold = time.Hour
	f.queue(waiter)
	if next := f.release(held, true); next != (driver.Handoff{}) {
		t.Fatalf("handed on to %+v", next)
	}
	state := f.look(s, "n")
	if state.Holder.Session != "" || state.Waiters != 1 || state.Ready || state.Rest <= 59*time.Minute || state.Rest > time.Hour {
		t.Fatalf("%+v", state)
	}
	promote := func(want bool) []driver.Handoff {
		t.Helper()
		next, taken, err := drivertest.TakeOver(t.Context(), f, s, "n", driver.Holder{})
		if err != nil || taken != want {
			t.Fatalf("%+v, %v, %v", next, taken, err)
		}
		return next
	}
	promote(false)
	f.refused(request("n", s))
	f.refused(shared("n", s, 1, 2))
	other := shared("n", s, 1, 2)
	f.queue(other) // not granted, although nobody has the name
	if next, err := drivertest.Undo(t.Context(), f, s, "n", other.Attempt); err != nil || len(next) != 0 {
		t.Fatalf("%+v, %v", next, err)
	}
	f.rested("n")
	if state = f.look(s, "n"); !state.Ready || state.Rest != 0 {
		t.Fatalf("%+v", state)
	}
	f.went(promote(true), false, waiter.Attempt)
	if state = f.look(s, "n"); state.Rest <= 59*time.Minute {
		t.Fatalf("the rest of a waiter's own grant: %+v", state)
	}
	f.sound()
}

func TestAReclaimedNameRestsAsWell(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	r := request("n", dead)
	r.MinHold = time.Hour
	f.share(r)
	f.queue(request("n", s))
	holder := f.look(s, "n").Holder
	f.lapse(dead)
	next, taken, err := drivertest.TakeOver(t.Context(), f, s, "n", holder)
	if err != nil || !taken || len(next) != 0 {
		t.Fatalf("%+v, %v, %v", next, taken, err)
	}
	if state := f.look(s, "n"); state.Holder.Session != "" || state.Waiters != 1 {
		t.Fatalf("%+v", state)
	}
	f.sound()
}

func TestAnIdleNameIsNotPurgedBeforeItHasRested(t *testing.T) {
	f := newFixture(t)
	r := request("n", f.session())
	r.MinHold = time.Hour
	f.release(f.share(r), false)
	f.exec("UPDATE dblock_locks SET acquired_at = 1, token = 1") // the clock has passed that
	for _, want := range []int{0, 1} {
		if n, _, err := f.Purge(t.Context(), time.Minute, "", 10); err != nil || n != want {
			t.Fatalf("%d purged, %v; want %d", n, err, want)
		}
		f.rested("n")
	}
}

func TestAReentryBeginsARestOfItsOwn(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.take("n", s)
	r := request("n", f.session())
	r.Thread, r.MinHold = s, time.Hour
	if _, ok, err := f.reenter(t.Context(), r); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if rest := f.look(s, "n").Rest; rest <= 59*time.Minute || rest > time.Hour {
		t.Fatal(rest)
	}
	r.Session, r.Attempt, r.MinHold = s, "another", 0
	if _, ok, err := f.reenter(t.Context(), r); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if rest := f.look(s, "n").Rest; rest <= 59*time.Minute {
		t.Fatalf("a re-entry without one ended it: %v", rest)
	}
}

// Nobody waits either: what refuses the request is the rest alone.
func TestANameThatRestsIsNotTakenThoughNobodyWaits(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := request("n", s)
	r.MinHold = time.Hour
	f.release(f.share(r), false)
	f.refused(request("n", s))
	f.refused(shared("n", s, 1, 2))
	f.rested("n")
	f.release(f.share(request("n", s)), false)
	f.share(shared("n", s, 1, 2))
	f.sound()
}

// Those behind have not seen what was granted: they look again when they are told, and know then
// when it ends.
func TestTheNextIsToldOfALeaseThatIsGrantedBeforeIt(t *testing.T) {
	f := newFixture(t)
	holder, first, second := f.session(), f.session(), f.session()
	told := func(session string) int64 {
		return f.number("SELECT grants FROM dblock_heartbeats WHERE session_id = ?", session)
	}
	for name, set := range map[string]func(*driver.Request){
		"lease": func(r *driver.Request) { r.Lease = time.Hour },
		"rest":  func(r *driver.Request) { r.MinHold = time.Hour },
		"none":  func(*driver.Request) {},
	} {
		held := f.take(name, holder)
		r := request(name, first)
		set(&r)
		f.queue(r)
		f.enqueue(name, second)
		before := told(second)
		if next := f.release(held, true); next.Attempt != r.Attempt {
			t.Fatalf("handed to %+v", next)
		}
		if was := told(second) > before; was != (name != "none") {
			t.Errorf("%s: told %v", name, was)
		}
	}
}
