package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// shared is a request for units of a name.
func shared(name, session string, units, of int) driver.Request {
	r := request(name, session)
	r.Units, r.Of = units, of
	return r
}

// share must get its units at once.
func (f *fixture) share(r driver.Request) driver.Held {
	f.t.Helper()
	grant, taken, err := f.Take(f.t.Context(), r)
	if err != nil || !taken {
		f.t.Fatalf("take %d of %d units of %q: %v, %v", r.Units, r.Of, r.Name, taken, err)
	}
	return driver.Held{Name: r.Name, Session: r.Session, Token: grant.Token, Shared: r.Units > 0}
}

// queue must have to wait.
func (f *fixture) queue(r driver.Request) {
	f.t.Helper()
	if _, outcome, err := f.Join(f.t.Context(), r); err != nil || outcome != driver.Queued {
		f.t.Fatalf("enqueue for %q: %v, %v", r.Name, outcome, err)
	}
}

// refused must not be taken.
func (f *fixture) refused(r driver.Request) {
	f.t.Helper()
	if grant, taken, err := f.Take(f.t.Context(), r); err != nil || taken || grant != (driver.Grant{}) {
		f.t.Fatalf("%d of %d units of %q were taken: %+v, %v", r.Units, r.Of, r.Name, grant, err)
	}
}

// went checks to whom a name was handed on, with rising tokens, and whether others still wait.
func (f *fixture) went(next []driver.Handoff, contended bool, attempts ...string) {
	f.t.Helper()
	if len(next) != len(attempts) {
		f.t.Fatalf("handed on to %+v, want %d", next, len(attempts))
	}
	for i, n := range next {
		if n.Attempt != attempts[i] || n.Grant.Contended != contended || i > 0 && n.Grant.Token <= next[i-1].Grant.Token {
			f.t.Fatalf("hand-off %d of %+v, want %s, contended %v", i, next, attempts[i], contended)
		}
	}
}

// sound checks that what is counted in the rows of names is what there is.
func (f *fixture) sound() {
	f.t.Helper()
	wrong := f.number(`SELECT count(*) FROM dblock_locks l
		WHERE shared_units <> (SELECT coalesce(sum(units), 0) FROM dblock_shares p WHERE p.name = l.name)
		   OR waiters <> (SELECT coalesce(sum(members), 0) FROM dblock_waiters w WHERE w.name = l.name)
		   OR shared_units > 0 AND (session_id IS NOT NULL OR shared_units > capacity)
		   OR shared_units > 0 AND capacity <> (SELECT min(h.capacity) FROM dblock_shares h WHERE h.name = l.name)
		   OR mixed <> (SELECT count(DISTINCT h.capacity) > 1 FROM dblock_shares h WHERE h.name = l.name)
		   OR token < (SELECT coalesce(max(token), 0) FROM dblock_shares p WHERE p.name = l.name)`)
	if wrong != 0 {
		f.t.Fatalf("%d names are counted wrongly", wrong)
	}
}

func TestReadersShareAndAWriterExcludes(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	one, two := f.share(shared("n", a, 1, driver.Readers)), f.share(shared("n", b, 1, driver.Readers))
	if two.Token <= one.Token {
		t.Fatalf("token %d after %d", two.Token, one.Token)
	}
	f.refused(request("n", a))
	writer := request("n", a)
	f.queue(writer)
	f.refused(shared("n", b, 1, driver.Readers)) // or the writer would starve
	late, later := shared("n", a, 1, driver.Readers), shared("n", b, 1, driver.Readers)
	f.queue(late)
	f.queue(later)
	f.sound()
	release := func(h driver.Held) []driver.Handoff {
		t.Helper()
		next, err := drivertest.Release(t.Context(), f, h, false)
		if err != nil {
			t.Fatal(err)
		}
		f.sound()
		return next
	}
	f.went(release(two), false)
	next := release(one)
	f.went(next, true, writer.Attempt)
	next = release(driver.Held{Name: "n", Session: a, Token: next[0].Grant.Token})
	f.went(next, false, late.Attempt, later.Attempt)
	for _, n := range next {
		f.went(release(driver.Held{Name: "n", Session: n.Session, Token: n.Grant.Token, Shared: true}), false)
	}
	f.take("n", a)
	if _, err := drivertest.Release(t.Context(), f, one, true); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("released twice: %v", err)
	}
	if _, err := drivertest.Release(t.Context(), f, driver.Held{Name: "n", Session: a, Token: one.Token + 9}, true); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("released with another token: %v", err)
	}
}

func TestPermitsAreGivenInTheOrderOfTheQueueAndNobodyBarges(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	three, two := f.share(shared("n", s, 3, 5)), f.share(shared("n", s, 2, 5))
	f.refused(shared("n", s, 1, 5))
	large, small := shared("n", s, 4, 5), shared("n", s, 1, 5)
	f.queue(large)
	f.queue(small)
	next, err := drivertest.Release(t.Context(), f, two, false)
	if err != nil {
		t.Fatal(err)
	}
	f.went(next, false) // one unit would fit: but it is not first
	f.refused(shared("n", s, 1, 5))
	f.sound()
	if next, err = drivertest.Release(t.Context(), f, three, true); err != nil {
		t.Fatal(err)
	}
	f.went(next, false, large.Attempt, small.Attempt)
	f.sound()
	state := f.look(s, "n")
	if state.Sharing != 2 || state.Used != 5 || state.Capacity != 5 || state.Holder.Units == 0 || len(state.Granted) != 2 || state.Ready {
		t.Fatalf("%+v", state)
	}
}

func TestANameHasReadersOrPermits(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	disagrees := func(r driver.Request) {
		t.Helper()
		f.refused(r)
		if _, outcome, err := f.Join(t.Context(), r); !errors.Is(err, driver.ErrCapacity) || outcome != 0 {
			t.Fatalf("%d of %d: %v, %v", r.Units, r.Of, outcome, err)
		}
		f.sound()
	}
	held := f.share(shared("n", s, 2, 3))
	disagrees(shared("n", s, 1, driver.Readers))
	f.release(held, false)
	held = f.share(shared("n", s, 1, driver.Readers)) // nobody shared it any more
	disagrees(shared("n", s, 1, 4))
	f.release(held, false)

	whole := f.take("n", s)
	f.queue(request("n", s)) // of which the capacity from before must not count again
	waiter := shared("n", s, 1, 7)
	f.queue(waiter)
	disagrees(shared("n", s, 1, driver.Readers))
	f.queue(shared("n", s, 1, 7))
	first := f.release(whole, true)
	if _, err := drivertest.Undo(t.Context(), f, s, "n", waiter.Attempt); err != nil {
		t.Fatal(err)
	}
	disagrees(shared("n", s, 1, driver.Readers)) // one still waits
	if next := f.release(driver.Held{Name: "n", Session: s, Token: first.Grant.Token}, true); next.Grant.Token == 0 {
		t.Fatal("nobody got it")
	}
	if state := f.look(s, "n"); state.Capacity != 7 || state.Used != 1 {
		t.Fatalf("%+v", state)
	}
	f.sound()
}

func TestANameOfThreeSizesCountsTheSmallestThatIsLeft(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	two, six, four := f.share(shared("n", s, 1, 4)), f.share(shared("n", s, 1, 6)), f.share(shared("n", s, 1, 5))
	f.refused(shared("n", s, 2, 6))
	f.sound()
	for _, h := range []driver.Held{two, four} {
		f.release(h, false)
		f.sound()
	}
	f.share(shared("n", s, 5, 6))
	f.release(six, false)
	f.sound()
}

func TestAPlaceThatIsGivenUpMakesRoomForThoseBehindIt(t *testing.T) {
	f := newFixture(t)
	s, gone, dead := f.session(), f.session(), f.session()
	f.share(shared("n", s, 1, driver.Readers))
	writer := request("n", gone)
	f.queue(writer)
	f.queue(shared("n", dead, 1, driver.Readers))
	one, two, second := shared("n", s, 1, driver.Readers), shared("n", s, 1, driver.Readers), request("n", s)
	f.queue(one)
	f.queue(two)
	f.queue(second)
	f.lapse(dead)
	next, err := drivertest.Undo(t.Context(), f, gone, "n", writer.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	f.went(next, true, one.Attempt, two.Attempt)
	f.sound()
	if state := f.look(s, "n"); state.Waiters != 1 || state.Sharing != 3 || state.Head.Attempt != second.Attempt || state.Head.Left <= 0 {
		t.Fatalf("%+v", state)
	}
	for _, r := range []driver.Request{one, two} { // a share is left by its attempt, like any
		if next, err = drivertest.Undo(t.Context(), f, s, "n", r.Attempt); err != nil {
			t.Fatal(err)
		}
		f.went(next, false)
	}
	f.sound()
}

func TestADeadWriterAtTheHeadIsReclaimedFrom(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	f.share(shared("n", s, 1, driver.Readers))
	f.queue(request("n", dead))
	reader := shared("n", s, 1, driver.Readers)
	f.queue(reader)
	head := f.look(s, "n").Head
	reclaim := func(want bool, attempts ...string) {
		t.Helper()
		next, taken, err := drivertest.TakeOver(t.Context(), f, s, "n", head)
		if err != nil || taken != want {
			t.Fatalf("%+v, %v, %v", next, taken, err)
		}
		f.went(next, false, attempts...)
		f.sound()
	}
	reclaim(false)
	f.lapse(dead)
	if left := f.look(s, "n").Head.Left; left > 0 {
		t.Fatalf("%v are left to the dead", left)
	}
	reclaim(true, reader.Attempt)
	reclaim(false)
}

// The first that lives does not fit: the dead before it lose their places, and are counted off.
func TestTheDeadBeforeOneThatDoesNotFitAreCountedOff(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	one := f.share(shared("n", s, 1, 3))
	f.share(shared("n", s, 1, 3))
	f.queue(request("n", dead))
	f.queue(request("n", s))
	f.lapse(dead)
	f.expire(dead, true)
	if next, err := drivertest.Release(t.Context(), f, one, true); err != nil || len(next) > 0 {
		t.Fatalf("%+v, %v", next, err)
	}
	if n := f.look(s, "n").Waiters; n != 1 {
		t.Errorf("%d wait, as it is counted", n)
	}
	f.sound()
}

func TestSharesAreReclaimedFromTheDeadAndTheOverdue(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	f.share(shared("n", dead, 1, 2))
	leased := shared("n", s, 1, 2)
	leased.Lease = time.Hour
	f.share(leased)
	a, b := shared("n", s, 1, 2), shared("n", s, 1, 2)
	f.queue(a)
	f.queue(b)
	holder := f.look(s, "n").Holder
	if holder.Attempt != leased.Attempt && holder.Session != dead {
		t.Fatalf("%+v", holder)
	}
	f.lapse(dead)
	if holder = f.look(s, "n").Holder; holder.Session != dead || holder.Left > 0 || holder.Units != 1 {
		t.Fatalf("the one whose time is over first is %+v", holder)
	}
	next, taken, err := drivertest.TakeOver(t.Context(), f, s, "n", holder)
	if err != nil || !taken {
		t.Fatal(taken, err)
	}
	f.went(next, true, a.Attempt)
	if next, taken, err = drivertest.TakeOver(t.Context(), f, s, "n", holder); err != nil || taken {
		t.Fatalf("taken twice: %+v, %v", next, err)
	}
	f.exec("UPDATE dblock_shares SET expires_at = 1 WHERE attempt = ?", leased.Attempt)
	overdue, err := f.Overdue(t.Context(), 10)
	if err != nil || len(overdue) != 1 || overdue[0].Holder.Units != 1 || overdue[0].Holder.Grant.Lease != -1 {
		t.Fatalf("%+v, %v", overdue, err)
	}
	if next, taken, err = drivertest.TakeOver(t.Context(), f, s, "n", overdue[0].Holder); err != nil || !taken {
		t.Fatal(taken, err)
	}
	f.went(next, false, b.Attempt)
	f.sound()
}

func TestASessionWithSharesIsReferredTo(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := shared("n", s, 1, 2)
	held := f.share(r)
	f.exec("UPDATE dblock_shares SET asked = 'why'")
	claims, err := f.Orphans(t.Context(), s, 10)
	if err != nil || len(claims) != 1 || claims[0] != (driver.Attempt{Name: "n", Attempt: r.Attempt, Token: held.Token, Asked: "why"}) {
		t.Fatalf("%+v, %v", claims, err)
	}
	f.exec("UPDATE dblock_sessions SET started_at = 1")
	f.exec("UPDATE dblock_locks SET acquired_at = 1")
	if err := f.EndSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if ids, err := f.Expired(t.Context(), 10); err != nil || len(ids) != 1 || ids[0] != s {
		t.Fatalf("%v, %v", ids, err)
	}
	purged, _, err := f.Purge(t.Context(), time.Hour, "", 10)
	if err != nil || purged != 0 {
		t.Fatalf("%d names in use were purged: %v", purged, err)
	}
	if n, err := f.Forget(t.Context(), 0, 10); err != nil || n != 0 {
		t.Fatalf("%d sessions with shares were forgotten: %v", n, err)
	}
	f.release(held, false)
	if n, err := f.Forget(t.Context(), 0, 10); err != nil || n != 1 {
		t.Fatalf("%d sessions were forgotten: %v", n, err)
	}
}

func TestDowngradeLetsReadersInAndKeepsTheToken(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := request("n", s)
	r.Metadata, r.Lease = `{"k":"v"}`, time.Hour
	held := f.share(r)
	reader, writer, late := shared("n", s, 1, driver.Readers), request("n", s), shared("n", s, 1, driver.Readers)
	for _, r := range []driver.Request{reader, writer, late} {
		f.queue(r)
	}
	next, err := f.downgrade(held)
	if err != nil {
		t.Fatal(err)
	}
	f.went(next, true, reader.Attempt)
	f.sound()
	if next, err = f.downgrade(held); err != nil {
		t.Fatalf("the second time: %v", err)
	}
	f.went(next, false)
	if n := f.number(`SELECT count(*) FROM dblock_shares WHERE token = ? AND attempt = ? AND metadata = ? AND expires_at > acquired_at`,
		held.Token, r.Attempt, r.Metadata); n != 1 {
		t.Fatal("it is not the same lock any more")
	}
	if _, err := drivertest.Release(t.Context(), f, held, false); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("released as a whole: %v", err)
	}
	held.Shared = true
	f.release(held, true)
	if _, err = f.downgrade(held); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("of what is not held: %v", err)
	}

	held = f.take("m", s)
	f.queue(shared("m", s, 2, 5))
	if _, err = f.downgrade(held); !errors.Is(err, driver.ErrCapacity) {
		t.Fatalf("with permits in the queue: %v", err)
	}
	if f.look(s, "m").Holder.Grant.Token != held.Token {
		t.Fatal("something was done all the same")
	}
	f.sound()
}

func TestUpgradeIsForTheOnlyReaderAndGoesBeforeThoseWhoWait(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	one, two := shared("n", s, 1, driver.Readers), shared("n", s, 1, driver.Readers)
	one.Lease = time.Hour
	first, second := f.share(one), f.share(two)
	writer := request("n", s)
	f.queue(writer)
	upgrade := func(h driver.Held, attempt string, want bool) driver.Grant {
		t.Helper()
		grant, ok, err := f.upgrade(h, attempt)
		if err != nil || ok != want {
			t.Fatalf("%+v, %v, %v", grant, ok, err)
		}
		f.sound()
		return grant
	}
	upgrade(first, one.Attempt, false)
	upgrade(second, two.Attempt, false)
	f.release(second, true)
	grant := upgrade(first, one.Attempt, true)
	if grant.Token <= second.Token || !grant.Contended || grant.Lease <= 59*time.Minute || grant.Lease > time.Hour {
		t.Fatalf("%+v", grant)
	}
	if again := upgrade(first, one.Attempt, true); again.Token != grant.Token {
		t.Fatalf("%+v, and then %+v", grant, again)
	}
	whole := driver.Held{Name: "n", Session: s, Token: grant.Token}
	if next := f.release(whole, true); next.Attempt != writer.Attempt {
		t.Fatalf("%+v", next)
	}
	if _, _, err := f.upgrade(first, one.Attempt); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatal(err)
	}
}

func TestRaiseLiftsTheTokenOfAWholeNameOnly(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	held := f.take("n", s)
	high := held.Token + 1000
	for _, floor := range []int64{high, high, high - 500} { // never down
		got, err := f.raise(held, floor)
		if err != nil || got != high {
			t.Fatalf("%d, %v; want %d", got, err, high)
		}
		held.Token = got
	}
	stale := held
	stale.Token--
	if _, err := f.raise(stale, high+1); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatal(err)
	}
	f.release(held, false)
	if next := f.take("n", s); next.Token <= high {
		t.Fatalf("token %d after %d", next.Token, high)
	}
}
