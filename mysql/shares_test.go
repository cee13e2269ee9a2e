package mysql_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// units is a request for some of a name.
func (a actor) units(name string, n, of int) driver.Request {
	r := a.request(name)
	r.Units, r.Of = n, of
	return r
}

func (a actor) reader(name string) driver.Request { return a.units(name, 1, driver.Readers) }

// share takes what a request asks for.
func (a actor) share(t *testing.T, r driver.Request) driver.Held {
	t.Helper()
	grant, taken, err := a.Take(t.Context(), r)
	must(t, err)
	if !taken {
		t.Fatalf("%+v was not taken", r)
	}
	return driver.Held{Name: r.Name, Session: r.Session, Token: grant.Token, Shared: r.Units > 0}
}

// wait joins the queue.
func (a actor) wait(t *testing.T, r driver.Request) string {
	t.Helper()
	_, outcome, err := a.Join(t.Context(), r)
	must(t, err)
	if outcome != driver.Queued {
		t.Fatalf("outcome %v of %+v, want queued", outcome, r)
	}
	return r.Attempt
}

func (s server) used(t *testing.T, name string) int64 {
	t.Helper()
	n := s.number(t, "SELECT shared_units FROM dblock_locks WHERE name = ?", name)
	if sum := s.number(t, "SELECT COALESCE(SUM(units), 0) FROM dblock_shares WHERE name = ?", name); sum != n {
		t.Fatalf("%d units in the row of %s, %d in its shares", n, name, sum)
	}
	return n
}

func attempts(next []driver.Handoff) []string {
	var list []string
	for _, h := range next {
		list = append(list, h.Attempt)
	}
	return list
}

func TestReadersShareAndAWriterExcludes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		r := a.reader("n")
		r.Metadata, r.Lease = `{"k":1}`, time.Hour
		first := a.share(t, r)
		second := b.share(t, b.reader("n"))
		if second.Token <= first.Token || s.used(t, "n") != 2 {
			t.Fatal(first, second, s.used(t, "n"))
		}
		if _, taken, err := c.Take(t.Context(), c.request("n")); err != nil || taken {
			t.Fatal("a writer beside readers", err)
		}
		if _, taken, err := c.Take(t.Context(), c.units("n", 1, 3)); err != nil || taken {
			t.Fatal("another capacity", err)
		}
		state := a.look(t, "n")
		if state.Sharing != 2 || state.Used != 2 || state.Capacity != driver.Readers || state.Holder.Session != b.session && state.Holder.Session != a.session ||
			len(state.Granted) != 1 || state.Granted[0].Attempt != r.Attempt || state.Granted[0].Grant.Token != first.Token ||
			state.Granted[0].Grant.Lease <= 59*time.Minute || state.Ready || state.Head != (driver.Holder{}) || state.Holder.Units != 1 {
			t.Fatalf("%+v", state)
		}
		writer := c.wait(t, c.request("n"))
		if _, taken, err := c.Take(t.Context(), c.reader("n")); err != nil || taken {
			t.Fatal("a reader past a writer that waits", err)
		}
		reader := c.wait(t, c.reader("n"))
		state = c.look(t, "n")
		if !slices.Equal(state.Queued, []string{writer, reader}) || state.Head.Attempt != writer || state.Head.Session != c.session ||
			state.Head.Units != 0 || state.Head.Left <= 0 || state.Head.Grant != (driver.Grant{}) || state.Waiters != 2 || state.Ready {
			t.Fatalf("%+v", state)
		}
		for _, wrong := range []driver.Held{
			{Name: "n", Session: a.session, Token: first.Token},
			{Name: "n", Session: b.session, Token: first.Token, Shared: true},
			{Name: "N", Session: a.session, Token: first.Token, Shared: true},
		} {
			is(t, errorOf(drivertest.Release(t.Context(), a, wrong, true)), driver.ErrNotHeld)
		}
		if next, err := drivertest.Release(t.Context(), a, first, false); err != nil || next != nil {
			t.Fatal(next, err)
		}
		is(t, errorOf(drivertest.Release(t.Context(), a, first, false)), driver.ErrNotHeld)
		next, err := drivertest.Release(t.Context(), b, second, true)
		if err != nil || len(next) != 1 || next[0].Attempt != writer || next[0].Grant.Token <= second.Token || !next[0].Grant.Contended {
			t.Fatal(next, err)
		}
		next, err = drivertest.Release(t.Context(), c, driver.Held{Name: "n", Session: c.session, Token: next[0].Grant.Token}, true)
		if err != nil || len(next) != 1 || next[0].Attempt != reader || s.used(t, "n") != 1 {
			t.Fatal(next, err)
		}
		if claims, err := a.Orphans(t.Context(), c.session, 10); err != nil || !slices.Equal(claims, []driver.Attempt{{Name: "n", Attempt: reader, Token: next[0].Grant.Token}}) {
			t.Fatal(claims, err)
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

func TestReadersNextToEachOtherAreGrantedTogether(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		held := a.take(t, "n")
		var want []string
		dead := s.actor(t)
		for i := range 70 { // more than are read at once
			if i == 3 {
				dead.wait(t, dead.reader("n"))
				dead.wait(t, dead.request("n"))
			}
			want = append(want, a.wait(t, a.reader("n")))
		}
		writer := a.wait(t, a.request("n"))
		behind := a.wait(t, a.reader("n"))
		s.expire(t, dead)
		next, err := drivertest.Release(t.Context(), a, held, false)
		must(t, err)
		if !slices.Equal(attempts(next), want) {
			t.Fatalf("%d were granted, want %d in the order of the queue", len(next), len(want))
		}
		for i, h := range next {
			before := held.Token
			if i > 0 {
				before = next[i-1].Grant.Token
			}
			if h.Grant.Token <= before || !h.Grant.Contended {
				t.Fatalf("%+v after %d", h, before)
			}
			if n := s.number(t, "SELECT token FROM dblock_shares WHERE attempt = ?", h.Attempt); n != h.Grant.Token {
				t.Fatalf("the row says %d, the hand-over %d", n, h.Grant.Token)
			}
		}
		if s.used(t, "n") != 70 || s.number(t, "SELECT waiters FROM dblock_locks") != 2 || s.number(t, "SELECT COUNT(*) FROM dblock_waiters") != 2 {
			t.Fatal("the row does not tell what there is")
		}
		// The writer gives up: those behind it need not wait any more.
		after, err := sole(drivertest.Undo(t.Context(), a, a.session, "n", writer))
		if err != nil || after.Attempt != behind || after.Grant.Contended || s.used(t, "n") != 71 {
			t.Fatal(after, err)
		}
	})
}

func TestPermitsAreGivenInOrderAndNobodyBarges(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		two, one := a.share(t, a.units("n", 2, 4)), a.share(t, a.units("n", 1, 4))
		large := a.wait(t, a.units("n", 3, 4))
		if _, taken, err := a.Take(t.Context(), a.units("n", 1, 4)); err != nil || taken {
			t.Fatal("a small request barged", err)
		}
		small := a.wait(t, a.units("n", 1, 4))
		if _, _, err := a.Join(t.Context(), a.reader("n")); !errors.Is(err, driver.ErrCapacity) {
			t.Fatal(err)
		}
		if next, err := drivertest.Release(t.Context(), a, one, true); err != nil || next != nil {
			t.Fatal(next, err)
		}
		next, err := drivertest.Release(t.Context(), a, two, true)
		if err != nil || !slices.Equal(attempts(next), []string{large, small}) || s.used(t, "n") != 4 {
			t.Fatal(next, err)
		}
		for _, h := range next {
			must(t, errorOf(drivertest.Release(t.Context(), a, driver.Held{Name: "n", Session: h.Session, Token: h.Grant.Token, Shared: true}, false)))
		}
		a.share(t, a.units("n", 1, 5)) // nobody has said anything any more
	})
}

func TestTheCapacityIsThatOfThoseWhoShareOrWait(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		must(t, errorOf(drivertest.Release(t.Context(), a, a.share(t, a.reader("n")), true)))
		held := a.take(t, "n")
		a.wait(t, a.request("n")) // it does not mind what readers said once
		if state := a.look(t, "n"); state.Capacity != 0 {
			t.Fatalf("%+v", state)
		}
		attempt := a.wait(t, a.units("n", 1, 5))
		if state := a.look(t, "n"); state.Capacity != 5 {
			t.Fatalf("%+v", state)
		}
		_, _, err := a.Join(t.Context(), a.reader("n"))
		is(t, err, driver.ErrCapacity)
		must(t, errorOf(drivertest.Undo(t.Context(), a, a.session, "n", attempt)))
		is(t, errorOf(a.downgrade(t.Context(), held)), driver.ErrCapacity)
		if s.used(t, "n") != 0 || a.look(t, "n").Holder.Grant.Token != held.Token {
			t.Fatal("something was done")
		}
	})
}

func TestDowngradeAndUpgrade(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		r := a.request("n")
		r.Metadata, r.Lease = `{"k":1}`, time.Hour
		held := a.share(t, r)
		readers := []string{b.wait(t, b.reader("n")), b.wait(t, b.reader("n"))}
		writer := b.wait(t, b.request("n"))
		next, err := a.downgrade(t.Context(), held)
		if err != nil || !slices.Equal(attempts(next), readers) || s.used(t, "n") != 3 {
			t.Fatal(next, err)
		}
		next, err = a.downgrade(t.Context(), held)
		if err != nil || next != nil || s.used(t, "n") != 3 {
			t.Fatal("not idempotent", next, err)
		}
		is(t, errorOf(a.downgrade(t.Context(), driver.Held{Name: "n", Session: b.session, Token: held.Token})), driver.ErrNotHeld)
		is(t, errorOf(a.downgrade(t.Context(), driver.Held{Name: "m", Session: b.session, Token: held.Token})), driver.ErrNotHeld)
		held.Shared = true
		if own := a.look(t, "n").Granted; len(own) != 1 || own[0].Attempt != r.Attempt || own[0].Grant.Token != held.Token || own[0].Grant.Lease <= 0 {
			t.Fatalf("%+v", own)
		}
		if _, upgraded, err := a.upgrade(t.Context(), held, r.Attempt); err != nil || upgraded {
			t.Fatal("upgraded beside others", err)
		}
		for _, attempt := range readers {
			must(t, errorOf(drivertest.Undo(t.Context(), b, b.session, "n", attempt)))
		}
		_, _, err = b.upgrade(t.Context(), driver.Held{Name: "n", Session: b.session, Token: held.Token, Shared: true}, r.Attempt)
		is(t, err, driver.ErrNotHeld)
		_, _, err = a.upgrade(t.Context(), held, id())
		is(t, err, driver.ErrNotHeld)
		grant, upgraded, err := a.upgrade(t.Context(), held, r.Attempt)
		if err != nil || !upgraded || grant.Token <= held.Token || !grant.Contended || grant.Lease <= 59*time.Minute || grant.Lease > time.Hour {
			t.Fatal(grant, upgraded, err)
		}
		again, upgraded, err := a.upgrade(t.Context(), held, r.Attempt)
		if err != nil || !upgraded || again.Token != grant.Token || again.Lease <= 0 {
			t.Fatal(again, upgraded, err)
		}
		details, err := a.Describe(t.Context(), []string{"n"}, driver.AllWaiters)
		must(t, err)
		if d := details[0]; len(d.Holders) != 1 || d.Holders[0].Metadata != r.Metadata || d.Holders[0].Units != 0 ||
			len(d.Waiters) != 1 || d.Waiters[0].Attempt != writer || d.Token != grant.Token {
			t.Fatalf("%+v", d)
		}
		if s.used(t, "n") != 0 {
			t.Fatal("units are left")
		}
		raised, err := a.raise(t.Context(), driver.Held{Name: "n", Session: a.session, Token: grant.Token}, farAhead)
		if err != nil || raised != farAhead {
			t.Fatal(raised, err)
		}
		raised, err = a.raise(t.Context(), driver.Held{Name: "n", Session: a.session, Token: farAhead}, 1)
		if err != nil || raised != farAhead {
			t.Fatal(raised, err)
		}
		_, err = a.raise(t.Context(), driver.Held{Name: "n", Session: a.session, Token: grant.Token}, 1)
		is(t, err, driver.ErrNotHeld)
		last, err := sole(drivertest.Release(t.Context(), a, driver.Held{Name: "n", Session: a.session, Token: farAhead}, true))
		if err != nil || last.Attempt != writer || last.Grant.Token != farAhead+1 {
			t.Fatal(last, err)
		}
	})
}

func TestNobodyGetsANameThatRests(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		for _, there := range []bool{false, true} {
			r := a.request(fmt.Sprint("n", there))
			if r.MinHold = time.Hour; there {
				must(t, errorOf(drivertest.Release(t.Context(), a, a.take(t, r.Name), false)))
			}
			held := a.share(t, r)
			must(t, errorOf(drivertest.Release(t.Context(), a, held, false)))
			for _, next := range []driver.Request{b.request(r.Name), b.reader(r.Name)} {
				if _, taken, err := b.Take(t.Context(), next); err != nil || taken {
					t.Fatal("taken from its rest", err)
				}
			}
			if state := b.look(t, r.Name); state.Rest < 59*time.Minute || state.Rest > time.Hour || state.Ready {
				t.Fatalf("%+v", state)
			}
			attempt := b.wait(t, b.request(r.Name))
			if next, taken, err := drivertest.TakeOver(t.Context(), b, b.session, r.Name, driver.Holder{}); err != nil || taken || next != nil {
				t.Fatal(next, taken, err)
			}
			if state := b.look(t, r.Name); state.Ready || state.Rest <= 0 || state.Holder.Session != "" {
				t.Fatalf("%+v", state)
			}
			s.exec(t, "UPDATE dblock_locks SET rests_until = 1")
			if state := b.look(t, r.Name); !state.Ready || state.Rest > 0 {
				t.Fatalf("%+v", state)
			}
			next, taken, err := soleTaken(drivertest.TakeOver(t.Context(), b, b.session, r.Name, driver.Holder{}))
			if err != nil || !taken || next.Attempt != attempt {
				t.Fatal(next, taken, err)
			}
		}
		// A waiter's own rest begins when it gets the name.
		held := a.take(t, "m")
		r := b.request("m")
		r.MinHold = time.Hour
		b.wait(t, r)
		last, err := sole(drivertest.Release(t.Context(), a, held, true))
		must(t, err)
		a.wait(t, a.request("m"))
		if next, err := drivertest.Release(t.Context(), b, driver.Held{Name: "m", Session: b.session, Token: last.Grant.Token}, true); err != nil || next != nil {
			t.Fatal("handed on before its rest was over", next, err)
		}
	})
}

func TestTheDeadGiveTheirUnitsBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c, d := s.actor(t), s.actor(t), s.actor(t), s.actor(t)
		held := a.share(t, a.units("n", 2, 3))
		b.share(t, b.units("n", 1, 3))
		attempt := c.wait(t, c.units("n", 2, 3))
		dead := d.wait(t, d.units("n", 3, 3))
		behind := c.wait(t, c.units("n", 1, 3))
		holder := driver.Holder{Session: a.session, Units: 2, Grant: driver.Grant{Token: held.Token}}
		if next, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "n", holder); err != nil || taken || next != nil {
			t.Fatal("reclaimed from the living", err)
		}
		s.expire(t, a)
		if h := c.look(t, "n").Holder; h.Session != a.session || h.Left > 0 || h.Units != 2 || h.Grant.Token != held.Token {
			t.Fatalf("%+v", h)
		}
		next, taken, err := soleTaken(drivertest.TakeOver(t.Context(), c, c.session, "n", holder))
		if err != nil || !taken || next.Attempt != attempt || s.used(t, "n") != 3 {
			t.Fatal(next, taken, err)
		}
		if next, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "n", holder); err != nil || taken || next != nil || s.used(t, "n") != 3 {
			t.Fatal("reclaimed twice", err)
		}
		is(t, errorOf(drivertest.Release(t.Context(), a, held, true)), driver.ErrNotHeld)
		// The dead one at the head of the queue goes, and who is behind it fits as soon as there is
		// room.
		if _, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "n", c.look(t, "n").Head); err != nil || taken {
			t.Fatal("the living lost its place", err)
		}
		s.expire(t, d)
		head := c.look(t, "n").Head
		if head.Session != d.session || head.Attempt != dead || head.Left > 0 || head.Units != 3 {
			t.Fatalf("%+v", head)
		}
		if _, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "n", head); err != nil || !taken {
			t.Fatal(taken, err)
		}
		if head := c.look(t, "n").Head; head.Attempt != behind {
			t.Fatalf("%+v", head)
		}
		if n, err := c.Forget(t.Context(), -time.Hour, 10); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		// A fixed lease that is over.
		r := b.units("m", 1, 2)
		r.Lease = time.Hour
		b.share(t, r)
		s.exec(t, "UPDATE dblock_shares SET expires_at = 1 WHERE name = 'm'")
		overdue, err := c.Overdue(t.Context(), 10)
		if err != nil || len(overdue) != 1 || overdue[0].Name != "m" || overdue[0].Holder.Units != 1 {
			t.Fatal(overdue, err)
		}
		if _, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "m", overdue[0].Holder); err != nil || !taken || s.used(t, "m") != 0 {
			t.Fatal(taken, err)
		}
	})
}

func TestASessionWithASharedNameIsReferredTo(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := a.share(t, a.reader("n"))
		must(t, a.Watch(t.Context(), a.session, "n", "w"))
		must(t, b.EndSession(t.Context(), a.session))
		if expired, err := b.Expired(t.Context(), 10); err != nil || !slices.Equal(expired, []string{a.session}) {
			t.Fatal(expired, err)
		}
		if n, err := b.Forget(t.Context(), -time.Hour, 10); err != nil || n != 0 {
			t.Fatal("forgotten while it holds", n, err)
		}
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 0, token = 1")
		if n, _, err := b.Purge(t.Context(), ttl, "", 10); err != nil || n != 0 {
			t.Fatal("a shared name was purged", err)
		}
		must(t, errorOf(drivertest.Release(t.Context(), a, held, false)))
		if n, err := b.Forget(t.Context(), -time.Hour, 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_watchers"); n != 0 {
			t.Fatal("it watches on")
		}
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 0, rests_until = ?", farAhead)
		if n, _, err := b.Purge(t.Context(), ttl, "", 10); err != nil || n != 0 {
			t.Fatal("a name that rests was purged", err)
		}
	})
}
