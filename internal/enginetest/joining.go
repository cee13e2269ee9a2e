package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
)

func joinedTogether(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	held := l.take(x, "x0")
	leased := single(s, "leased")
	leased.Lease, leased.Metadata = time.Hour, `{"a":"ä<"}`
	rests := single(s, "rests")
	rests.MinHold, rests.Thread = time.Minute, "thread ü"
	l.joins(x, "x1")
	l.join(passable(s, "m2"), passable(s, "m1"), leased, rests, passable(s, "m3"))
	l.joins(x, "x2")
	order := e.attempts(t, "SELECT attempt FROM dblock_waiters WHERE name = ? ORDER BY ticket", "n")
	if want := []string{"x1", "m2", "m1", "leased", "rests", "m3", "x2"}; !slices.Equal(order, want) {
		t.Fatalf("queued: %v: want %v", order, want)
	}
	token := l.release(x, held.Token, "x1").Last
	token = l.release(x, token, "m2", "m1").Last
	next := l.vacate(driver.Release(l.held(s, token), true))
	if len(next) != 1 || next[0].Attempt != "leased" || next[0].Grant.Lease != time.Hour || next[0].Grant.Run != (driver.Range{}) {
		t.Fatalf("%+v", next)
	}
	details, err := l.Backend.Describe(brief(t), []string{"n"}, driver.AllWaiters)
	if err != nil {
		t.Fatal(err)
	}
	var metadata map[string]string // an engine may write the same JSON in other ways
	if err := json.Unmarshal([]byte(details[0].Holders[0].Metadata), &metadata); err != nil || metadata["a"] != "ä<" {
		t.Errorf("%+v, %v", details, err)
	}
	next = l.vacate(driver.Release(l.held(s, next[0].Grant.Token), true))
	if len(next) != 1 || next[0].Attempt != "rests" {
		t.Fatalf("%+v", next)
	}
	if state := l.look(s); state.Rest <= 0 || state.Holder.Thread != "thread ü" {
		t.Errorf("%+v", state)
	}
}

func joinedFree(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	all := []driver.Request{passable(s, "m1"), passable(s, "m2"), passable(s, "m3")}
	if _, outcome, err := l.Backend.Enqueue(brief(t), all...); err != nil || outcome != driver.Gone || e.waiting(t, "n") != 0 {
		t.Fatalf("a name without a row: %v, %v, and %d wait", outcome, err, e.waiting(t, "n"))
	}
	held := l.take(x, "x0")
	l.release(x, held.Token)
	g, outcome, err := l.Backend.Enqueue(brief(t), all...)
	switch {
	case err != nil:
		t.Fatal(err)
	case outcome == driver.Gone:
		if n := e.waiting(t, "n"); n != 0 {
			t.Errorf("gone, and %d wait", n)
		}
	case outcome == driver.Granted:
		if g.Token <= held.Token || !g.Contended || g.Run != (driver.Range{}) {
			t.Errorf("%+v", g)
		}
		l.highest = g.Token
		l.shows(s, "m1", g.Token, 2)
		l.release(s, g.Token, "m2", "m3")
	default:
		t.Errorf("outcome %v", outcome)
	}
}

func joinedNot(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	held := l.take(x, "x0")
	l.joins(s, "m1")
	if _, _, err := l.Backend.Enqueue(brief(t), passable(s, "m2"), passable(s, "m1"), passable(s, "m3")); err == nil {
		t.Error("an attempt joined twice")
	}
	l.shows(x, "x0", held.Token, 1)
	l.joins(s, "m4")
	l.release(x, held.Token, "m1", "m4")
}

// unlessBusy repeats a call that has done nothing because of another.
func unlessBusy(call func() error) error {
	for {
		if err := call(); !errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrRetry) {
			return err
		}
	}
}

func racedRuns(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	for i := range 12 {
		name := func(attempt string) string { return fmt.Sprint(attempt, "i", i) }
		tokens := l.run(s, name("m1"), name("m2"), name("m3"))
		var mu sync.Mutex
		var next []driver.Handoff
		vacate := func(v driver.Vacancy) {
			var n []driver.Handoff
			if err := unlessBusy(func() (err error) { n, _, err = l.Backend.Vacate(brief(t), v); return }); err != nil {
				t.Error(err)
			}
			mu.Lock()
			next = append(next, n...)
			mu.Unlock()
		}
		var outcome driver.Outcome
		var grant driver.Grant
		var all sync.WaitGroup
		all.Go(func() { vacate(driver.Release(l.held(s, tokens.Last), true)) })
		all.Go(func() { vacate(driver.Undo(s, "n", name("m1"))) })
		all.Go(func() {
			if err := unlessBusy(func() (err error) {
				grant, outcome, err = l.Backend.Enqueue(brief(t), passable(x, name("x1")), passable(x, name("x2")))
				return
			}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if t.Failed() {
			return
		}
		token := grant.Token
		switch outcome {
		case driver.Granted:
			l.handed(next)
			l.highest = token
			token = l.release(x, token, name("x2")).Last
		case driver.Queued:
			token = l.handed(next, name("x1"), name("x2")).Last
		case driver.Gone:
			l.handed(next)
			e.free(t, "n")
			continue
		}
		l.sees(s, nil, driver.Range{}, 0)
		l.release(x, token)
		e.free(t, "n")
	}
}
