package contracts

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var living = []test{
	{"a waiter that is dead is passed over, and a holder that is dead is succeeded, whichever row tells it", deaths},
	{"a long queue is served in its order, past the dead in it", longQueue},
	{"only the dead are succeeded, once, and by what was seen of them", succession},
	{"a session ends, and nothing is granted to it any more", ending},
	{"a session is opened once", func(w *world) {
		assert.Error(w, w.OpenSession(w.ctx, driver.Session{ID: w.session(), TTL: time.Second}),
			"two sessions of one id")
	}},
	{"an expired session lives on with a late heartbeat, and is dead for good once it was ended", expiry},
	{"a session without a row is dead once it has no heartbeat, and stays so", burial},
	{"a session whose process has ended is ended before its lease, once, and its row says by whom and why", crash},
	{"what a session has is listed, with its tokens and with what was asked of it", claims},
	{"sessions that have expired are listed, and what the dead have left", expired},
	{"a watch ends with its session", watches},
	{"a release goes by the token of its hold, not by the highest of the name", releaseOfAMember},
	{"an op without a token finds no hold", func(w *world) {
		r := reader("n", w.session())
		w.take(r)
		_, err := driver.Do(w.ctx, w.Backend, protocol.Downgrade{Held: protocol.Held{Name: "n", Session: r.Session}})
		assert.ErrorIs(w, err, driver.ErrNotHeld)
	}},
}

func deaths(w *world) {
	for how, die := range map[string]func(session string){
		"ended":   func(s string) { w.must(w.EndSession(w.ctx, s, true)) },
		"expired": w.lapse,
		"crashed": func(s string) { assert.NoError(w, assert.ErrOf(w.Bury(w.ctx, s, "", "its process ended"))) },
		"buried":  func(s string) { w.lapse(s); w.expires(s, true) },
		"no session": func(s string) {
			w.exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", s)
			w.exec("DELETE FROM dblock_sessions WHERE id = ?", s)
		},
		"no heartbeat": func(s string) { w.exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", s) },
	} {
		w.T.Run(how, func(t *testing.T) {
			inner := *w
			w := &inner
			w.T = t
			lives, dead := w.session(), w.session()
			held := w.take(whole(how, lives))
			w.queue(whole(how, dead))
			w.queue(whole(how, dead))
			next := w.queue(whole(how, lives))
			w.queue(whole(how, dead))
			other := how + ", holding"
			w.take(whole(other, dead))
			second := w.queue(whole(other, lives))
			die(dead)
			if next := w.release(held, next); !next[0].Grant.Contended {
				w.Errorf("%+v", next)
			}
			places := func() int64 { return w.number("SELECT count(*) FROM dblock_waiters WHERE name = ?", how) }
			if n := w.look("", how).Waiters; n != 1 || places() != 1 {
				w.Errorf("%d wait, as it is counted", n)
			}
			w.release(protocol.Held{Name: how, Session: lives, Token: w.look("", how).Holder.Grant.Token})
			assert.Equal(w, places(), 0, "of the dead are left in the queue")
			h := w.look("", other).Holder
			if h.Session != dead || h.Left > 0 {
				w.Errorf("%+v", h)
			}
			w.takeOver(other, h, true, second)
		})
	}
}

// longQueue is longer than what a transition reads at once.
func longQueue(w *world) {
	s, dead := w.session(), w.session()
	held := w.take(whole("n", s))
	var want []string
	for i := range 70 {
		if i == 3 {
			w.queue(reader("n", dead))
			w.queue(whole("n", dead))
		}
		want = append(want, w.queue(reader("n", s)))
	}
	writer, behind := w.queue(whole("n", s)), w.queue(reader("n", s))
	w.lapse(dead)
	for i, h := range w.release(held, want...) {
		if token := w.number("SELECT token FROM dblock_shares WHERE attempt = ?", h.Attempt); token != h.Grant.Token ||
			token <= held.Token || !h.Grant.Contended {
			w.Fatalf("grant %d: %+v, and token %d in its row", i, h, token)
		}
		held.Token = h.Grant.Token
	}
	if state := w.look(s, "n"); state.Used != 70 || state.Waiters != 2 ||
		w.number("SELECT count(*) FROM dblock_waiters") != 2 {
		w.Fatalf("%+v", state)
	}
	next, err := drivertest.Undo(w.ctx, w.Backend, s, "n", writer)
	w.must(err)
	w.went(next, behind)
}

func succession(w *world) {
	a, b := w.session(), w.session()
	w.take(whole("n", a))
	next := w.queue(whole("n", b))
	seen := w.look(b, "n").Holder
	w.takeOver("n", seen, false)
	w.takeOver("n", protocol.Holder{}, false)
	w.lapse(a)
	w.beats(a, true) // between the look and the takeover
	w.takeOver("n", seen, false)
	w.lapse(a)
	stale := seen
	stale.Grant.Token--
	w.takeOver("n", stale, false)
	w.takeOver("n", seen, true, next)
	w.beats(a, false)
	w.takeOver("n", seen, false)
	if h := w.look(b, "n").Holder; h.Attempt != next {
		w.Errorf("the successor lost it to %+v", h)
	}
	// The same of a share, and of a place at the head that keeps others waiting.
	c, d := w.session(), w.session()
	w.take(units("m", c, 2, 3))
	w.queue(units("m", d, 3, 3))
	next = w.queue(units("m", b, 1, 3))
	w.takeOver("m", w.look(b, "m").Holder, false)
	w.takeOver("m", w.look(b, "m").Head, false)
	w.lapse(d)
	w.takeOver("m", w.look(b, "m").Head, true, next)
	w.lapse(c)
	if h := w.look(b, "m").Holder; h.Session != c || h.Units != 2 {
		w.Fatalf("%+v", h)
	}
	w.takeOver("m", w.look(b, "m").Holder, true)
	if s := w.look(b, "m"); s.Used != 1 || s.Sharing != 1 || s.Waiters != 0 {
		w.Errorf("%+v", s)
	}
}

func ending(w *world) {
	a, b := w.session(), w.session()
	held := w.take(whole("n", a))
	w.queue(whole("n", b))
	for range 2 {
		w.must(w.EndSession(w.ctx, b, false))
	}
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_sessions WHERE id = ? AND dead = (1 = 1)", b), 1,
		"the row of a session that may have something stays, dead")
	w.beats(b, false)
	w.release(held)
	for _, session := range []string{a, b, "nobody"} {
		w.must(w.EndSession(w.ctx, session, true))
	}
	for _, table := range []string{"dblock_sessions", "dblock_heartbeats"} {
		assert.Equal(w, w.number("SELECT count(*) FROM "+table), 0, "rows of ended sessions are left in", table)
	}
	w.beats(a, false)
}

func expiry(w *world) {
	s := w.session()
	w.expires(s, false)
	w.lapse(s)
	w.beats(s, true) // late, but nobody has ended it
	w.expires(s, false)
	w.lapse(s)
	w.expires(s, true)
	w.expires(s, true)
	w.beats(s, false)
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_heartbeats"), 0, "a clock that steps back would revive it")
}

func burial(w *world) {
	s := w.session()
	w.take(whole("n", s))
	w.exec("DELETE FROM dblock_sessions")
	w.expires(s, false) // its client relies on the lock
	w.beats(s, true)
	w.exec("DELETE FROM dblock_sessions")
	w.lapse(s)
	w.expires(s, true)
	w.beats(s, false)
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_sessions WHERE id = ? AND dead = (1 = 1)", s), 1,
		"no row says that it is dead")
	assert.Error(w, w.OpenSession(w.ctx, driver.Session{ID: s, TTL: time.Hour}), "a dead session was opened again")
}

func crash(w *world) {
	const because = "its process ended on here"
	a, b := w.session(), w.session()
	w.take(whole("n", a))
	next := w.queue(whole("n", b))
	buries := func(session, by, because string, want driver.Burial) {
		w.Helper()
		if got, err := w.Bury(w.ctx, session, by, because); got != want || err != nil {
			w.Fatalf("bury %s: %v, %v; want %v", session, got, err, want)
		}
	}
	another, err := w.tables.BeginTx(w.ctx, nil)
	w.must(err)
	_, err = another.ExecContext(w.ctx, w.db.Text("UPDATE dblock_sessions SET app = 'other' WHERE id = ?"), a)
	w.must(err)
	_, err = w.Bury(w.ctx, a, b, because)
	assert.ErrorIs(w, err, driver.ErrBusy, "another call is ending it, maybe")
	w.must(another.Rollback())
	buries("nobody", b, because, driver.Missing)
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_sessions"), 2, "rows: nobody has got one")
	buries(a, b, because, driver.Buried)
	buries(a, "another", "another reason", driver.DeadAlready)
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_sessions WHERE id = ? AND dead = (1 = 1) AND buried_by = ? "+
		"AND buried_because = ?", a, b, because), 1, "rows that say who was the first")
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_heartbeats WHERE session_id = ?", a), 0,
		"heartbeats of the dead")
	w.beats(a, false)
	w.beats(b, true)
	seen, err := w.Read(w.ctx, "", []string{"n"}, 1)
	w.must(err)
	if len(seen) != 1 || seen[0].Holders[0].Buried != because || seen[0].Holders[0].Left > 0 ||
		seen[0].Queue[0].Buried != "" || seen[0].Queue[0].Left <= 0 {
		w.Fatalf("%+v", seen)
	}
	w.takeOver("n", w.look(b, "n").Holder, true, next)
	w.take(whole("late", a)) // a statement of the dead process that arrives late
	w.takeOver("late", w.look(b, "late").Holder, true)
	sessions, err := w.Sessions(w.ctx, driver.SessionFilter{Dead: true}, "", 9)
	w.must(err)
	for _, s := range sessions {
		if s.Dead != (s.ID == a) || (s.Buried == because) != s.Dead {
			w.Errorf("%+v", s)
		}
	}
	w.must(w.EndSession(w.ctx, b, false))
	buries(b, a, because, driver.DeadAlready)
	assert.Equal(w, w.number("SELECT count(*) FROM dblock_sessions WHERE buried_by <> ''"), 1, "it had ended by itself")
}

func claims(w *world) {
	a, b := w.session(), w.session()
	held, other := whole("mine", a), w.take(whole("theirs", b))
	token := w.take(held).Token
	share := units("shared", a, 1, 2)
	shares := w.take(share).Token
	place := w.queue(whole("theirs", a))
	w.exec("UPDATE dblock_shares SET asked = 'why'")
	want := []driver.Claim{
		{Session: a, Name: "mine", Attempt: held.Attempt, Token: token},
		{Session: a, Name: "shared", Attempt: share.Attempt, Token: shares, Asked: "why"},
		{Session: a, Name: "theirs", Attempt: place},
	}
	up, err := w.Upkeep(w.ctx, a)
	w.must(err)
	defer up.Close()
	for _, list := range []func() ([]driver.Claim, error){
		func() ([]driver.Claim, error) { return up.Claims(w.ctx, a, nil) },
		func() ([]driver.Claim, error) { return up.Claims(w.ctx, a, want) },
		func() ([]driver.Claim, error) { return w.Claims(w.ctx, a, 10) },
	} {
		claims, err := list()
		slices.SortFunc(claims, func(a, b driver.Claim) int { return cmp.Compare(a.Name, b.Name) })
		if err != nil || !slices.Equal(claims, want) {
			w.Errorf("%+v, %v; want %+v", claims, err, want)
		}
	}
	if one, err := w.Claims(w.ctx, a, 1); err != nil || len(one) != 1 {
		w.Errorf("%+v, %v", one, err)
	}
	w.release(other, place)
	if claims, err := up.Claims(w.ctx, b, nil); err != nil || len(claims) != 0 {
		w.Errorf("%+v, %v", claims, err)
	}
}

func expired(w *world) {
	var sessions []string
	for range 7 {
		sessions = append(sessions, w.session())
	}
	held, shared := whole("n", sessions[0]), reader("m", sessions[2])
	left := []driver.Claim{
		{Session: sessions[0], Name: "n", Attempt: held.Attempt, Token: w.take(held).Token},
		{Session: sessions[1], Name: "n", Attempt: w.queue(whole("n", sessions[1]))},
		{Session: sessions[2], Name: "m", Attempt: shared.Attempt, Token: w.take(shared).Token},
	}
	w.take(whole("living", sessions[6]))
	for _, s := range sessions[:3] {
		w.exec("UPDATE dblock_sessions SET dead = (1 = 1) WHERE id = ?", s)
		w.exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", s)
	}
	w.exec("UPDATE dblock_heartbeats SET expires_at = 50 WHERE session_id = ?", sessions[3])
	w.exec("UPDATE dblock_heartbeats SET expires_at = 300 WHERE session_id = ?", sessions[4])
	w.must(w.EndSession(w.ctx, sessions[5], false)) // leaves nothing
	want := slices.Sorted(slices.Values(sessions[3:5]))
	got, err := w.Expired(w.ctx, 10)
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		w.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err = w.Expired(w.ctx, 1); err != nil || len(got) != 1 {
		w.Errorf("%q, %v; want one", got, err)
	}
	order := func(a, b driver.Claim) int { return cmp.Compare(a.Session, b.Session) }
	slices.SortFunc(left, order)
	orphans, err := w.Orphans(w.ctx, 10)
	if slices.SortFunc(orphans, order); err != nil || !slices.Equal(orphans, left) {
		w.Errorf("%+v, %v; want %+v", orphans, err, left)
	}
	if orphans, err = w.Orphans(w.ctx, 2); err != nil || len(orphans) != 2 {
		w.Errorf("%+v, %v; want two", orphans, err)
	}
}

func watches(w *world) {
	a, b, dead := w.session(), w.session(), w.session()
	watch := func(session, id string, want int64) {
		w.Helper()
		if session != "" {
			w.must(w.Watch(w.ctx, session, "n", id))
		}
		require.Equal(w, w.number("SELECT count(*) FROM dblock_watchers"), want, "watch")
	}
	watch(a, "1", 1)
	watch(a, "1", 1) // a statement may be sent twice
	watch(b, "2", 2)
	watch(dead, "3", 3)
	watch("nobody", "4", 3)
	w.must(w.Unwatch(w.ctx, "n", "1"))
	watch("", "", 2)
	w.must(w.EndSession(w.ctx, b, true))
	watch("", "", 1)
	watch(b, "5", 1) // too late
	w.lapse(dead)
	w.expires(dead, true)
	led := protocol.Held{Name: "n", Session: a, Token: w.take(whole("n", a)).Token}
	_, err := w.Backend.Run(w.ctx, protocol.Announce{Held: led})
	w.must(err)
	if n, err := w.Forget(w.ctx, -time.Hour, 10); err != nil || n != 1 {
		w.Fatalf("%d forgotten, %v", n, err)
	}
	watch("", "", 0)
}

// releaseOfAMember releases a member of a cohort that is the only holder since the others gave up.
// The tokens of the others stay reserved.
func releaseOfAMember(w *world) {
	s := w.session()
	first := w.take(whole("n", s))
	cohort := whole("n", s)
	cohort.Members = 3
	grant := w.release(first, w.queue(cohort))[0].Grant
	last := protocol.Held{Name: "n", Session: s, Token: grant.Token}
	member := protocol.Detachment{Token: grant.First, Host: "h", Thread: "member"}
	w.must(require.ErrOf(driver.Do(w.ctx, w.Backend, protocol.Detach{Held: last, Member: member})))
	if removed, err := driver.Do(w.ctx, w.Backend, protocol.Release(last, false, false)); err != nil || removed.Done() {
		w.Errorf("a release by the highest token: %+v, %v", removed, err)
	}
	w.release(protocol.Held{Name: "n", Session: s, Token: grant.First})
	assert.Equal(w, w.look("", "n").Holder.Session, "", "after the release the holder is")
}
