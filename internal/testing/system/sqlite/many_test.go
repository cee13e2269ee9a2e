package sqlite_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

func TestABatchWaitsForATransactionOnlyWhereItMay(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	tx, err := open(t, f.path, "_txlock=immediate").pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	r := request("n", s)
	r.Wait = false
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if grants, _, err := f.Batch(ctx, []driver.Request{request("m", s), r}, nil); !errors.Is(err, driver.ErrBusy) || grants != nil {
		t.Fatalf("%+v, %v", grants, err)
	}
}

func TestReleaseAllLeavesWhatOthersWaitFor(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	held := []driver.Held{
		f.take("a", s), f.share(shared("b", s, 1, 2)), f.take("c", s), f.share(shared("d", s, 2, 2)),
		{Name: "e", Session: s, Token: 1}, f.share(shared("f", s, 1, 2)),
	}
	f.queue(request("c", s))
	f.queue(shared("d", s, 1, 2))
	held[5].Token-- // not held so
	rest, err := drivertest.ReleaseAll(t.Context(), f, held)
	if err != nil || !slices.Equal(rest, held[2:]) {
		t.Fatalf("%+v, %v", rest, err)
	}
	f.sound()
	if n := f.number("SELECT count(*) FROM dblock_locks WHERE session_id IS NULL AND shared_units = 0"); n != 2 {
		t.Fatalf("%d names are free", n)
	}
	if rest, err = drivertest.ReleaseAll(t.Context(), f, nil); err != nil || rest != nil {
		t.Fatalf("of nothing: %+v, %v", rest, err)
	}
}

func TestBreakTakesFromTheLivingTellsThemAndWritesItDown(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	for what, units := range map[string]int{"whole": 0, "share": 2} {
		t.Run(what, func(t *testing.T) {
			r := shared(what, a, units, 2)
			held := f.share(r)
			waiter := request(what, b)
			f.queue(waiter)
			l := f.listen(a)
			holder := f.look(b, what).Holder
			stale := holder
			stale.Grant.Token--
			ev := driver.Event{Name: what, Kind: "broken", Token: held.Token, Session: a, Detail: "why"}
			if next, taken, err := drivertest.Break(t.Context(), f, b, what, stale, ev); err != nil || taken {
				t.Fatalf("of a holder that is none: %+v, %v", next, err)
			}
			next, taken, err := drivertest.Break(t.Context(), f, b, what, holder, ev)
			if err != nil || !taken {
				t.Fatal(taken, err)
			}
			f.went(next, false, waiter.Attempt)
			l.hears(r.Attempt)
			f.sound()
			if _, err := drivertest.Release(t.Context(), f, held, true); !errors.Is(err, driver.ErrNotHeld) {
				t.Fatalf("the old holder released: %v", err)
			}
			events, err := f.Events(t.Context(), driver.EventFilter{Name: what}, 10)
			if err != nil || len(events) != 1 || events[0].Kind != "broken" || events[0].Detail != "why" {
				t.Fatalf("%+v, %v", events, err)
			}
			f.heartbeat(a, true) // it lost the name, and not its life
		})
	}
}

func TestBreakGivesUpAPlaceInTheQueue(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	f.share(shared("n", a, 1, driver.Readers))
	writer, reader := request("n", a), shared("n", b, 1, driver.Readers)
	f.queue(writer)
	f.queue(reader)
	next, taken, err := drivertest.Break(t.Context(), f, b, "n", f.look(b, "n").Head, driver.Event{Name: "n", Kind: "broken"})
	if err != nil || !taken {
		t.Fatal(taken, err)
	}
	f.went(next, false, reader.Attempt)
	if _, taken, err = drivertest.Break(t.Context(), f, b, "n", driver.Holder{}, driver.Event{}); err != nil || taken {
		t.Fatalf("of nobody: %v, %v", taken, err)
	}
	f.sound()
}

func TestASharerIsGuardedAndReleasesInATransaction(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := shared("n", s, 2, 2)
	r.Lease = time.Hour
	held := f.share(r)
	waiter := shared("n", s, 1, 2)
	f.queue(waiter)
	inside := f.tx()
	nobody := func(string, int, any) bool { return false }
	for _, commit := range []bool{false, true} {
		tx, err := f.pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stale := held
		stale.Shared = false
		if err := inside.Guard(t.Context(), tx, stale, nil); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("guarded as a whole: %v", err)
		}
		if err := inside.Guard(t.Context(), tx, held, nil); err != nil {
			t.Fatal(err)
		}
		if err := inside.ReleaseTx(t.Context(), tx, held, driver.Detachment{}, nil); err != nil {
			t.Fatal(err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		f.sound()
	}
	state := f.look(s, "n")
	if len(state.Granted) != 1 || state.Granted[0].Attempt != waiter.Attempt {
		t.Fatalf("%+v", state)
	}
	tx, err := f.pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	// A share is in the way of a transaction, also one's own.
	state, locked, err := inside.LockTx(t.Context(), tx, "n", func(string, int, any) bool { return true }, false, nil)
	if err != nil || locked || state.Holder.Attempt != waiter.Attempt {
		t.Fatalf("%+v, %v, %v", state, locked, err)
	}
	if _, locked, err = inside.LockTx(t.Context(), tx, "m", nobody, false, nil); err != nil || !locked {
		t.Fatalf("a name that nobody has: %v, %v", locked, err)
	}
}
