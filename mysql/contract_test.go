package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/mysql"
)

func TestValidate(t *testing.T) {
	is(t, mysql.New(nil).Validate(), driver.ErrConfig)
	connector, err := sqldriver.NewConnector(sqldriver.NewConfig())
	must(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	must(t, mysql.New(db).Validate())
	for n, want := range map[int]error{1: driver.ErrConfig, 2: driver.ErrConfig, 3: nil} {
		db.SetMaxOpenConns(n)
		is(t, mysql.New(db).Validate(), want)
	}
}

func TestSchema(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		e := s.engine(t)
		s.migrate(t) // again, as after one that was cut off
		if schema, err := e.Schema(t.Context()); err != nil || schema.Version != driver.SchemaVersion || schema.Check() != nil {
			t.Fatal(schema, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_schema"); n != 1 {
			t.Fatalf("%d rows in dblock_schema", n)
		}
		s.exec(t, "DROP TABLE dblock_schema, dblock_locks")
		if schema, err := e.Schema(t.Context()); err != nil || schema != (driver.Schema{}) {
			t.Fatal(schema, err)
		}
		_, _, err := e.Take(t.Context(), driver.Request{Name: "n", Session: "s", Attempt: "a"})
		is(t, err, driver.ErrSchema)
	})
}

func TestTakeAndRelease(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		r := a.request("n")
		r.Metadata, r.Lease = `{"k":"ü"}`, time.Hour
		first, taken, err := a.Take(t.Context(), r)
		if err != nil || !taken || first.Token < time.Now().Add(-time.Hour).UnixMicro() || first.Lease != time.Hour || first.Contended {
			t.Fatal(first, taken, err)
		}
		if _, taken, err := b.Take(t.Context(), b.request("n")); err != nil || taken {
			t.Fatal("taken twice", err)
		}
		state := b.look(t, "n")
		h := state.Holder
		if h.Session != a.session || h.Host != "h" || h.Thread != r.Thread || h.Attempt != r.Attempt || h.Grant.Token != first.Token ||
			h.Grant.Lease <= 0 || h.Grant.Lease > time.Hour || h.Left <= 0 || h.Left > ttl || time.Since(h.Since).Abs() > time.Minute ||
			state.Waiters != 0 || len(state.Queued) != 0 {
			t.Fatalf("%+v", state)
		}
		held := driver.Held{Name: "n", Session: a.session, Token: first.Token}
		for _, wrong := range []driver.Held{
			{Name: "n", Session: a.session, Token: first.Token - 1},
			{Name: "n", Session: b.session, Token: first.Token},
			{Name: "N", Session: a.session, Token: first.Token},
		} {
			for _, contended := range []bool{false, true} {
				is(t, second(drivertest.Release(t.Context(), b, wrong, contended)), driver.ErrNotHeld)
			}
		}
		must(t, second(drivertest.Release(t.Context(), a, held, false)))
		is(t, second(drivertest.Release(t.Context(), a, held, false)), driver.ErrNotHeld)
		if state := b.look(t, "n"); state.Holder != (driver.Holder{}) {
			t.Fatalf("%+v is not free", state)
		}
		again, taken, err := b.Take(t.Context(), b.request("n"))
		if err != nil || !taken || again.Token <= first.Token || again.Lease != 0 {
			t.Fatal(again, taken, err)
		}
		if lease := s.number(t, "SELECT COALESCE(expires_at, 0) + LENGTH(metadata) FROM dblock_locks"); lease != 0 {
			t.Fatal("the next holder inherited a lease or metadata")
		}
	})
}

func TestTokensRiseWhenTheClockGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		held := a.take(t, "n")
		must(t, second(drivertest.Release(t.Context(), a, held, true)))
		s.exec(t, "UPDATE dblock_locks SET token = ?", farAhead)
		if held = a.take(t, "n"); held.Token != farAhead+1 {
			t.Fatal(held)
		}
		a.enqueue(t, "n")
		next, err := sole(drivertest.Release(t.Context(), a, held, true))
		if err != nil || next.Grant.Token != farAhead+2 {
			t.Fatal(next, err)
		}
	})
}

func TestNamesAreBytes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		names := []string{"a", "A", "á", "a ", " a", "ａ", "a\t", "a'\\\"", "ß", "ss", "😀"}
		for _, name := range names {
			a.take(t, name)
		}
		states, err := a.Look(t.Context(), a.session, names)
		must(t, err)
		got := make([]string, 0, len(states))
		for _, s := range states {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Fatalf("%q, want %q", got, names)
		}
	})
}

func TestTheQueueIsServedInOrderAndTheDeadArePassedOver(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		held := a.take(t, "n")
		var waiting []actor
		var attempts []string
		for range 9 {
			b := s.actor(t)
			waiting = append(waiting, b)
			attempts = append(attempts, b.enqueue(t, "n"))
		}
		if state := waiting[3].look(t, "n"); state.Waiters != 9 || !slices.Equal(state.Queued, attempts[3:4]) || !state.Holder.Grant.Contended {
			t.Fatalf("%+v", state)
		}
		for i := range 6 { // more than are read at once; some dead, some only over their time
			s.expire(t, waiting[i])
			if i%2 == 0 {
				must(t, second(a.Expire(t.Context(), waiting[i].session)))
			}
		}
		must(t, second(drivertest.Undo(t.Context(), a, a.session, "n", attempts[8])))          // another session's place is none
		must(t, second(drivertest.Undo(t.Context(), a, waiting[7].session, "n", attempts[7]))) // from the middle
		must(t, second(drivertest.Undo(t.Context(), a, waiting[7].session, "n", attempts[7])))
		next, err := sole(drivertest.Release(t.Context(), a, held, false))
		if err != nil || next.Attempt != attempts[6] || next.Session != waiting[6].session || !next.Grant.Contended {
			t.Fatal(next, err)
		}
		if _, taken, err := a.Take(t.Context(), a.request("n")); err != nil || taken {
			t.Fatal("taken past the queue", err)
		}
		next, err = sole(drivertest.Undo(t.Context(), a, waiting[6].session, "n", attempts[6])) // undone after it was granted
		if err != nil || next.Attempt != attempts[8] || next.Grant.Contended {
			t.Fatal(next, err)
		}
		next, err = sole(drivertest.Release(t.Context(), a, driver.Held{Name: "n", Session: next.Session, Token: next.Grant.Token}, true))
		if err != nil || next != (driver.Handoff{}) {
			t.Fatal(next, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_waiters") + s.number(t, "SELECT waiters FROM dblock_locks"); n != 0 {
			t.Fatalf("%d are left in the queue", n)
		}
		if _, outcome, err := a.Join(t.Context(), a.request("n")); err != nil || outcome != driver.Granted {
			t.Fatal(outcome, err)
		}
	})
}

func TestAFixedLeaseStartsWithTheGrant(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := a.take(t, "n")
		r := b.request("n")
		r.Lease = time.Hour
		if _, outcome, err := b.Join(t.Context(), r); err != nil || outcome != driver.Queued {
			t.Fatal(outcome, err)
		}
		s.exec(t, "UPDATE dblock_waiters SET enqueued_at = 0")
		next, err := sole(drivertest.Release(t.Context(), a, held, true))
		if err != nil || next.Grant.Lease != time.Hour {
			t.Fatal(next, err)
		}
		if left := a.look(t, "n").Holder.Grant.Lease; left < 59*time.Minute {
			t.Fatal(left)
		}
		if overdue, err := a.Overdue(t.Context(), 10); err != nil || len(overdue) != 0 {
			t.Fatal(overdue, err)
		}
		if _, taken, err := drivertest.TakeOver(t.Context(), a, a.session, "n", driver.Holder{Session: b.session, Grant: driver.Grant{Token: next.Grant.Token, Lease: -1}}); err != nil || taken {
			t.Fatal("reclaimed before its time", err)
		}
		s.exec(t, "UPDATE dblock_locks SET expires_at = 1")
		h := a.look(t, "n").Holder
		if h.Grant.Lease != -1 || h.Left > 0 {
			t.Fatalf("%+v", h)
		}
		overdue, err := a.Overdue(t.Context(), 10)
		if err != nil || len(overdue) != 1 || overdue[0].Name != "n" {
			t.Fatal(overdue, err)
		}
		if _, taken, err := drivertest.TakeOver(t.Context(), a, a.session, "n", overdue[0].Holder); err != nil || !taken {
			t.Fatal(taken, err)
		}
		is(t, second(drivertest.Release(t.Context(), b, driver.Held{Name: "n", Session: b.session, Token: next.Grant.Token}, true)), driver.ErrNotHeld)
	})
}

func TestReenter(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		r := b.request("n")
		if _, reentered, err := b.reenter(t.Context(), r); err != nil || reentered {
			t.Fatal(reentered, err)
		}
		held := a.take(t, "n")
		if _, reentered, err := b.reenter(t.Context(), r); err != nil || reentered {
			t.Fatal("a stranger re-entered", err)
		}
		h := b.look(t, "n").Holder
		r.Host, r.Thread = h.Host, h.Thread+" " // no collation may say that these are the same
		if _, reentered, err := b.reenter(t.Context(), r); err != nil || reentered {
			t.Fatal("a stranger re-entered", err)
		}
		a.enqueue(t, "n")
		r.Thread = h.Thread
		grant, reentered, err := b.reenter(t.Context(), r)
		if err != nil || !reentered || grant.Token <= held.Token || !grant.Contended {
			t.Fatal(grant, reentered, err)
		}
		is(t, second(drivertest.Release(t.Context(), a, held, true)), driver.ErrNotHeld)
	})
}

func TestACrashedHolderIsSucceeded(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		a.take(t, "n")
		a.take(t, "m")
		attempt := b.enqueue(t, "n")
		queued := a.enqueue(t, "n")
		h := c.look(t, "n").Holder
		if next, taken, err := soleTaken(drivertest.TakeOver(t.Context(), c, c.session, "n", h)); err != nil || taken {
			t.Fatal("reclaimed from the living", next, err)
		}
		s.expire(t, a)
		if h := c.look(t, "n").Holder; h.Left > 0 {
			t.Fatalf("%+v", h)
		}
		if expired, err := c.Expired(t.Context(), 10); err != nil || !slices.Equal(expired, []string{a.session}) {
			t.Fatal(expired, err)
		}
		next, taken, err := soleTaken(drivertest.TakeOver(t.Context(), c, c.session, "n", h))
		if err != nil || !taken || next.Session != b.session || next.Attempt != attempt || next.Grant.Token <= h.Grant.Token {
			t.Fatal(next, taken, err)
		}
		if _, taken, err := drivertest.TakeOver(t.Context(), c, c.session, "n", h); err != nil || taken {
			t.Fatal("reclaimed twice", err)
		}
		if expired, err := c.Expired(t.Context(), 10); err != nil || !slices.Equal(expired, []string{a.session}) {
			t.Fatal("the dead who still hold are not listed", expired, err)
		}
		orphans, err := c.Orphans(t.Context(), a.session, 10)
		if err != nil || len(orphans) != 2 || !slices.ContainsFunc(orphans, func(c driver.Attempt) bool { return c.Name == "m" && c.Token > 0 }) ||
			!slices.Contains(orphans, driver.Attempt{Name: "n", Attempt: queued}) {
			t.Fatal(orphans, err)
		}
		if orphans, err := c.Orphans(t.Context(), a.session, 1); err != nil || len(orphans) != 1 {
			t.Fatal(orphans, err)
		}
		if n, err := c.Forget(t.Context(), -time.Hour, 10); err != nil || n != 0 {
			t.Fatal("a session was forgotten that still holds", n, err)
		}
		for _, o := range orphans {
			must(t, second(drivertest.Undo(t.Context(), c, a.session, o.Name, o.Attempt)))
		}
		if expired, err := c.Expired(t.Context(), 10); err != nil || len(expired) != 0 {
			t.Fatal(expired, err)
		}
		if n, err := c.Forget(t.Context(), time.Hour, 10); err != nil || n != 0 {
			t.Fatal("forgotten too early", n, err)
		}
		if n, err := c.Forget(t.Context(), -time.Hour, 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	})
}

func TestAMissingSessionIsBuried(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		h := b.look(t, "n").Holder
		s.exec(t, "DELETE FROM dblock_sessions WHERE id = ?", a.session)
		if _, taken, err := drivertest.TakeOver(t.Context(), b, b.session, "n", h); err != nil || !taken {
			t.Fatal(taken, err)
		}
		if n := s.number(t, "SELECT dead FROM dblock_sessions WHERE id = ?", a.session); n != 1 {
			t.Fatalf("dead is %d", n)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_heartbeats WHERE session_id = ?", a.session); n != 0 {
			t.Fatal("its heartbeat is left")
		}
		if err := b.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}); err == nil {
			t.Fatal("a dead session was opened again")
		}
	})
}

func TestASessionEndsInGoodOrder(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		u, err := s.engine(t).Upkeep(t.Context(), "s")
		must(t, err)
		held := a.take(t, "n")
		attempt := a.enqueue(t, "n")
		claims, err := u.Attempts(t.Context(), a.session)
		if err != nil || len(claims) != 2 || !slices.Contains(claims, driver.Attempt{Name: "n", Attempt: attempt}) {
			t.Fatal(claims, err)
		}
		for range 2 {
			if alive, err := u.Heartbeat(t.Context(), a.session, ttl); err != nil || !alive {
				t.Fatal(alive, err)
			}
		}
		must(t, b.EndSession(t.Context(), a.session))
		if alive, err := u.Heartbeat(t.Context(), a.session, ttl); err != nil || alive {
			t.Fatal(alive, err)
		}
		if next, err := sole(drivertest.Release(t.Context(), a, held, true)); err != nil || next.Session != "" {
			t.Fatal("granted to a session that had ended", next, err)
		}
		if n := s.number(t, "SELECT dead FROM dblock_sessions WHERE id = ?", a.session); n != 1 {
			t.Fatalf("dead is %d", n)
		}
		must(t, b.EndSession(t.Context(), a.session))
		must(t, b.EndSession(t.Context(), b.session))
		must(t, b.EndSession(t.Context(), "nobody"))
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_sessions"); n != 0 {
			t.Fatalf("%d sessions are left", n)
		}
		must(t, u.Close())
		if alive, err := u.Heartbeat(t.Context(), a.session, ttl); err == nil {
			t.Fatal("a closed connection beats", alive)
		}
	})
}

func TestPurgeWalksUpwards(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for i := range 10 {
			held := a.take(t, fmt.Sprint("n", i))
			if i != 4 {
				must(t, second(drivertest.Release(t.Context(), a, held, false)))
			}
		}
		if n, _, err := a.Purge(t.Context(), time.Hour, "", 100); err != nil || n != 0 {
			t.Fatal("purged what was in use a moment ago", n, err)
		}
		var pages []string
		deleted := 0
		for after := ""; ; {
			n, next, err := a.Purge(t.Context(), -time.Hour, after, 4)
			must(t, err)
			deleted += n
			if next == "" {
				break
			}
			pages, after = append(pages, next), next
		}
		if deleted != 9 || !slices.Equal(pages, []string{"n3", "n7"}) {
			t.Fatal(deleted, pages)
		}
		if a.look(t, "n4").Holder.Session != a.session {
			t.Fatal("a held lock was purged")
		}
	})
}

func TestManyNamesAreLookedAtInPieces(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		names := make([]string, 1200)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
			if i%2 == 0 {
				a.take(t, names[i])
			}
		}
		for _, n := range []int{0, 1, 2, 8, 9, 512, 513, 1200} {
			states, err := a.Look(t.Context(), a.session, names[:n])
			if err != nil || len(states) != (n+1)/2 {
				t.Fatal(n, len(states), err)
			}
		}
	})
}

func TestAPoolThatIsUsedUpIsNamedAsTheCause(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, func(*sqldriver.Config) {})
		pool.SetMaxOpenConns(3)
		e := mysql.New(pool).Backend
		for range 3 {
			conn, err := pool.Conn(t.Context())
			must(t, err)
			defer conn.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := e.OnSideConn(ctx, func(context.Context, driver.Upkeep) error { t.Error("ran"); return nil })
		is(t, err, driver.ErrUnavailable)
		is(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Error(err)
		}
	})
}

func TestAConnectionIsReservedBeforeItIsNeeded(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, func(*sqldriver.Config) {})
		pool.SetMaxOpenConns(3)
		e := mysql.New(pool).Backend
		leave := e.Attend("", ttl)
		defer leave()
		u, err := e.Upkeep(t.Context(), "s")
		must(t, err)
		defer u.Close()
		eventually(t, "two connections are reserved", func() bool { return pool.Stats().InUse == 2 })
		leave()
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections in use after the client left, want that of the heartbeats", n)
		}
	})
}
