package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

func TestEndSessionLetsNothingBeGrantedToIt(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	held := f.take("n", a)
	f.enqueue("n", b)
	for range 2 {
		if err := f.EndSession(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.number("SELECT count(*) FROM dblock_sessions WHERE id = ? AND dead", b); n != 1 {
		t.Fatal("the row of a session to which a place refers must stay, dead")
	}
	if next := f.release(held, true); next != (driver.Handoff{}) {
		t.Fatalf("granted to %+v", next)
	}
	for _, session := range []string{a, b, "never there"} {
		if err := f.EndSession(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.number("SELECT (SELECT count(*) FROM dblock_sessions) + (SELECT count(*) FROM dblock_heartbeats)"); n != 0 {
		t.Fatalf("%d rows of ended sessions are left", n)
	}
	f.heartbeat(a, false)
}

func TestASessionIsOpenedOnce(t *testing.T) {
	f := newFixture(t)
	if err := f.OpenSession(t.Context(), driver.Session{ID: f.session(), TTL: time.Second}); err == nil {
		t.Fatal("a second session of the same id")
	}
}

func TestExpireWaitsForItsTimeAndIsForGood(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.expire(s, false)
	f.lapse(s)
	f.heartbeat(s, true) // late, but nobody has killed it
	f.expire(s, false)
	f.lapse(s)
	f.expire(s, true)
	f.expire(s, true)
	f.heartbeat(s, false)
	if n := f.number("SELECT count(*) FROM dblock_heartbeats"); n != 0 {
		t.Fatal("a clock that steps back would revive it")
	}
}

func TestASessionWithoutARowIsDeadAndStaysSo(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.take("n", s)
	f.exec("DELETE FROM dblock_sessions")
	f.expire(s, true)
	f.heartbeat(s, false)
	if err := f.OpenSession(t.Context(), driver.Session{ID: s, TTL: time.Hour}); err == nil {
		t.Fatal("the unique key should have said that it is dead")
	}
}

func TestReclaimTakesFromTheDeadOnly(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	f.take("n", a)
	attempt := f.enqueue("n", b)
	holder := f.look(b, "n").Holder
	reclaim := func(holder driver.Holder, want bool) driver.Handoff {
		t.Helper()
		next, taken, err := drivertest.TakeOver(t.Context(), f, b, "n", holder)
		if err != nil || taken != want {
			t.Fatalf("reclaim from %+v: %+v, %v, %v", holder, next, taken, err)
		}
		return f.only(next)
	}
	reclaim(holder, false)
	reclaim(driver.Holder{}, false)
	stale := holder
	stale.Grant.Token--
	f.lapse(a)
	f.heartbeat(a, true) // between the look and the reclaim
	reclaim(holder, false)
	f.lapse(a)
	reclaim(stale, false)
	if next := reclaim(holder, true); next.Session != b || next.Attempt != attempt || next.Grant.Token <= holder.Grant.Token {
		t.Fatalf("%+v", next)
	}
	f.heartbeat(a, false)
	reclaim(holder, false)
	if h := f.look(b, "n").Holder; h.Attempt != attempt {
		t.Fatalf("the successor lost it to %+v", h)
	}
	f.exec("DELETE FROM dblock_sessions WHERE id = ?", b)
	reclaim(f.look(b, "n").Holder, true)
	if h := f.look(b, "n").Holder; h != (driver.Holder{}) {
		t.Fatalf("held by %+v", h)
	}
}

func TestClaimsAndOrphansListWhatASessionHas(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	held, other := f.take("mine", a), f.take("theirs", b)
	attempt := f.enqueue("theirs", a)
	up, err := f.Upkeep(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	claims, err := up.Attempts(t.Context(), a)
	if err != nil || len(claims) != 2 || claims[0].Name != "mine" || claims[0].Token != held.Token ||
		claims[1] != (driver.Attempt{Name: "theirs", Attempt: attempt}) {
		t.Fatalf("%+v, %v", claims, err)
	}
	if orphans, err := f.Orphans(t.Context(), a, 10); err != nil || !slices.Equal(orphans, claims) {
		t.Fatalf("%+v, %v", orphans, err)
	}
	if orphans, err := f.Orphans(t.Context(), a, 1); err != nil || len(orphans) != 1 {
		t.Fatalf("%+v, %v", orphans, err)
	}
	f.release(other, true)
	f.release(held, true)
	if claims, err := up.Attempts(t.Context(), b); err != nil || len(claims) != 0 {
		t.Fatalf("%+v, %v", claims, err)
	}
}

func TestExpiredListsTheOverdueAndTheDeadThatLeaveSomething(t *testing.T) {
	f := newFixture(t)
	var sessions []string
	for range 6 {
		sessions = append(sessions, f.session())
	}
	f.take("n", sessions[0])
	f.enqueue("n", sessions[1])
	for i, s := range sessions[:2] {
		f.exec("UPDATE dblock_sessions SET dead = true, started_at = ? WHERE id = ?", 100+i, s)
		f.exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", s)
	}
	f.exec("UPDATE dblock_heartbeats SET expires_at = 50 WHERE session_id = ?", sessions[2])
	f.exec("UPDATE dblock_heartbeats SET expires_at = 300 WHERE session_id = ?", sessions[3])
	f.exec("UPDATE dblock_sessions SET dead = true WHERE id = ?", sessions[4]) // leaves nothing
	expired, err := f.Expired(t.Context(), 10)
	want := []string{sessions[2], sessions[0], sessions[1], sessions[3]}
	if err != nil || !slices.Equal(expired, want) {
		t.Fatalf("%v, %v, want %v", expired, err, want)
	}
	if expired, err = f.Expired(t.Context(), 2); err != nil || !slices.Equal(expired, want[:2]) {
		t.Fatalf("%v, %v", expired, err)
	}
}

func TestPurgeDeletesIdleRowsPageByPage(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	for i := range 25 {
		f.release(f.take(fmt.Sprintf("n%02d", i), s), false)
	}
	f.take("n07", s)
	held := f.take("n08", s)
	f.enqueue("n08", s)
	f.exec("UPDATE dblock_locks SET acquired_at = 1, token = 1 WHERE name <> 'n09'")
	f.exec("UPDATE dblock_locks SET session_id = NULL WHERE name = 'n08'") // nobody holds it, somebody waits
	var deleted, calls int
	for after := ""; calls == 0 || after != ""; calls++ {
		n, next, err := f.Purge(t.Context(), time.Hour, after, 10)
		if err != nil || next != "" && next <= after {
			t.Fatalf("%d, %q after %q: %v", n, next, after, err)
		}
		deleted, after = deleted+n, next
	}
	if rows := f.number("SELECT count(*) FROM dblock_locks WHERE name IN ('n07', 'n08', 'n09')"); deleted != 22 || calls != 3 || rows != 3 {
		t.Fatalf("%d deleted in %d pages, %d of 3 in use are left (token %d)", deleted, calls, rows, held.Token)
	}
}

func TestPurgeWithNothingIdleWaitsForNoWriter(t *testing.T) {
	f := newFixture(t)
	f.release(f.take("n", f.session()), false)
	open(t, f.path, "").pin().exec("BEGIN IMMEDIATE")
	ctx, cancel := brief(t)
	defer cancel()
	if n, next, err := f.Purge(ctx, time.Hour, "", 10); n != 0 || next != "" || err != nil {
		t.Fatal(n, next, err)
	}
}

func TestTokensRiseAcrossAPurge(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	held := f.take("n", s)
	f.release(held, false)
	f.exec("UPDATE dblock_locks SET acquired_at = 1")
	purge := func(want int) {
		t.Helper()
		// A row is only deleted when the clock has passed its token, which a millisecond clock may
		// need a moment for.
		eventually(t, fmt.Sprintf("%d rows are purged", want), func() bool {
			n, _, err := f.Purge(t.Context(), time.Second, "", 10)
			if err != nil {
				t.Fatal(err)
			}
			return n == want
		})
	}
	purge(1)
	again := f.take("n", s)
	if again.Token <= held.Token {
		t.Fatalf("token %d after %d", again.Token, held.Token)
	}
	f.release(again, false)
	f.exec("UPDATE dblock_locks SET acquired_at = 1, token = ?", time.Now().Add(time.Hour).UnixMicro())
	purge(0)
	if f.number("SELECT count(*) FROM dblock_locks") != 1 {
		t.Fatal("a row went whose token is ahead of the clock")
	}
}

func TestForgetDeletesDeadSessionsToWhichNothingRefers(t *testing.T) {
	f := newFixture(t)
	alive, holder, waiter, young := f.session(), f.session(), f.session(), f.session()
	var gone []string
	for range 5 {
		gone = append(gone, f.session())
	}
	f.take("n", holder)
	f.enqueue("n", waiter)
	f.exec("UPDATE dblock_sessions SET dead = true WHERE id <> ?", alive)
	f.exec("UPDATE dblock_sessions SET started_at = 1 WHERE id <> ?", young)
	for _, want := range []int{3, 2, 0} {
		if n, err := f.Forget(t.Context(), time.Minute, 3); err != nil || n != want {
			t.Fatalf("forgot %d, %v, want %d of %d", n, err, want, len(gone))
		}
	}
	if n := f.number("SELECT count(*) FROM dblock_sessions WHERE id IN (?, ?, ?, ?)", alive, holder, waiter, young); n != 4 {
		t.Fatalf("%d of 4 are left", n)
	}
}
