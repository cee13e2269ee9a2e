package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
)

func leftRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3", "m4")
	l.joins(x, "x1")
	l.handed(l.vacate(driver.Undo(s, "n", "m1")))
	rest := driver.Range{First: tokens.First + 1, Last: tokens.Last}
	l.sees(s, nil, rest, rest.First, "m2", "m3", "m4")
	l.shows(s, "m2", tokens.Last, 3)
	l.handed(l.vacate(driver.Undo(s, "n", "m3")))
	l.shows(s, "m2", tokens.Last, 2)
	l.stays(driver.Undo(s, "n", "m3"))
	l.stays(driver.Undo(s, "n", "m1"))
	l.stays(driver.Undo(x, "n", "m2"))
	l.handed(l.vacate(driver.Undo(s, "n", "m2")))
	l.shows(s, "m4", tokens.Last, 1)
	l.sees(s, nil, driver.Range{}, tokens.Last, "m4")
	next := l.vacate(driver.Undo(s, "n", "m4"))
	l.handed(next, "x1")
	l.shows(x, "x1", l.highest, 0)

	l.joins(s, "m5", "m6") // the last of a run has left: the first is left alone
	tokens = l.release(x, l.highest, "m5", "m6")
	l.handed(l.vacate(driver.Undo(s, "n", "m6")))
	l.shows(s, "m5", tokens.Last, 0)
	l.joins(x, "x2")
	l.handed(l.vacate(driver.Undo(s, "n", "m5")), "x2")
}

func leftPlaces(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	l.joins(s, "m4")
	l.joins(x, "x1")
	next, err := l.Backend.Leave(brief(t), s, "n", []string{"m1", "m2", "m3", "m4"})
	if err != nil {
		t.Fatal(err)
	}
	l.handed(next)
	l.shows(s, "m1", tokens.Last, 1) // it has no place
	l.sees(s, nil, tokens, tokens.First, "m1")
	l.release(s, tokens.Last, "x1")
}

// dissolve breaks what the name's holder has.
func (l *line) dissolve(self string, h driver.Holder) []driver.Handoff {
	l.t.Helper()
	return l.vacate(driver.Break(self, "n", h, driver.Event{Name: "n", Kind: "broken", Token: h.Grant.Token, Session: h.Session}))
}

func brokenRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	old := l.run(s, "m1", "m2", "m3", "m4")
	l.joins(x, "x1")
	holder := l.look(x).Holder
	part := holder
	part.Grant.Token = old.First
	l.stays(driver.Break(x, "n", part, driver.Event{Name: "n", Kind: "broken"}))
	tokens := l.handed(l.dissolve(x, holder), "m2", "m3", "m4")
	l.sees(s, nil, tokens, tokens.First, "m2", "m3", "m4")
	l.shows(s, "m2", tokens.Last, 3)
	for token := old.First; token <= old.Last; token++ {
		is(t, l.Backend.Settle(brief(t), l.held(s, token), false), driver.ErrNotHeld)
		l.stays(driver.Release(l.held(s, token), true))
	}

	// Nobody is granted a name that rests.
	e.exec(t, "UPDATE dblock_locks SET rests_until = ? WHERE name = 'n'", e.now(t)+time.Hour.Microseconds())
	l.handed(l.dissolve(x, l.look(x).Holder))
	l.sees(s, []string{"m3", "m4"}, driver.Range{}, 0)
	if claims := l.claims(s); len(claims) != 2 || claims["m3"] != 0 || claims["m4"] != 0 {
		t.Errorf("claimed: %v", claims)
	}
	if n := e.number(t, "SELECT count(*) FROM dblock_waiters WHERE token <> 0"); n != 0 {
		t.Errorf("%d places are still of the run", n)
	}
	e.exec(t, "UPDATE dblock_locks SET rests_until = 0 WHERE name = 'n'")
	tokens = l.handed(l.vacate(driver.TakeOver(x, "n", driver.Holder{})), "m3", "m4")
	l.release(s, tokens.Last, "x1")
}

func deadRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	l.joins(x, "x1", "x2")
	holder := l.look(x).Holder
	l.stays(driver.TakeOver(x, "n", holder)) // it lives
	e.end(t, s)
	if left := l.look(x).Holder.Left; left > 0 {
		t.Errorf("the holder is dead, and has %v left", left)
	}
	l.handed(l.vacate(driver.TakeOver(x, "n", holder)), "x1", "x2")
	l.shows(x, "x1", l.highest, 1)
	is(t, l.Backend.Settle(brief(t), l.held(s, tokens.First), false), driver.ErrNotHeld)
	if claims := l.claims(s); len(claims) > 0 {
		t.Errorf("the dead have %v", claims)
	}
}

func claimedRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	l.joins(s, "m4")
	up, err := l.Backend.Upkeep(brief(t))
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	list, err := up.Claims(brief(t), s)
	if err != nil {
		t.Fatal(err)
	}
	claims := make(map[string]int64)
	for _, c := range list {
		claims[c.Attempt] = c.Token
	}
	want := map[string]int64{"m1": tokens.Last, "m2": tokens.First + 1, "m3": tokens.Last, "m4": 0}
	for _, got := range []map[string]int64{claims, l.claims(s)} {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("claimed: %v: want %v", got, want)
		}
	}
}

// graph lists the attempts of a graph in the order of the alphabet, holders in brackets.
func (l *line) graph(from ...string) (list []string) {
	l.t.Helper()
	waits, err := l.Backend.WaitGraph(brief(l.t), from)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, w := range waits {
		if w.Holds {
			w.Attempt = "[" + w.Attempt + "]"
		}
		list = append(list, w.Attempt)
	}
	slices.Sort(list)
	return list
}

func graphOfRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	l.joins(x, "x1")
	if got := l.graph("m2", "m3"); len(got) > 0 {
		t.Errorf("members of a run wait: %v", got)
	}
	if got := l.graph("x1"); !slices.Equal(got, []string{"x1"}) {
		t.Errorf("one waits behind a run: %v", got)
	}
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First+1), false); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"x1", "m3"} {
		want := []string{"[m2]", from}
		if got := l.graph(from); !slices.Equal(got, want) {
			t.Errorf("a run was settled: %v: want %v", got, want)
		}
	}
}

func describedRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	l.joins(x, "x1")
	describe := func() (holder driver.Party, waiters []string) {
		t.Helper()
		details, err := l.Backend.Describe(brief(t), []string{"n"}, driver.AllWaiters)
		if err != nil || len(details) != 1 || len(details[0].Holders) != 1 {
			t.Fatalf("%+v, %v", details, err)
		}
		if details[0].Token != tokens.Last {
			t.Errorf("the highest token is %d: want %d", details[0].Token, tokens.Last)
		}
		for _, w := range details[0].Waiters {
			waiters = append(waiters, w.Attempt)
		}
		return details[0].Holders[0], waiters
	}
	if h, waiters := describe(); h.Attempt != "m1" || h.Grant.Token != tokens.Last || h.Holds != 1 || !slices.Equal(waiters, []string{"x1"}) {
		t.Errorf("%+v, %v", h, waiters)
	}
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First+1), false); err != nil {
		t.Fatal(err)
	}
	if h, waiters := describe(); h.Attempt != "m2" || h.Grant.Token != tokens.First+1 || h.Holds != 1 || !slices.Equal(waiters, []string{"m3", "x1"}) {
		t.Errorf("%+v, %v", h, waiters)
	}
}

func tokensOfRuns(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	held := l.take(x, "x0")
	l.joins(s, "m1", "m2", "m3")
	ahead := e.now(t) + time.Hour.Microseconds()
	e.exec(t, "UPDATE dblock_locks SET token = ? WHERE name = 'n'", ahead)
	tokens := l.release(x, held.Token, "m1", "m2", "m3")
	if want := (driver.Range{First: ahead + 1, Last: ahead + 3}); tokens != want {
		t.Fatalf("tokens %+v: want %+v", tokens, want)
	}
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First), false); err != nil {
		t.Fatal(err)
	}
	tokens = l.release(s, tokens.First, "m2", "m3")
	if want := (driver.Range{First: ahead + 4, Last: ahead + 5}); tokens != want {
		t.Fatalf("tokens %+v: want %+v", tokens, want)
	}
	l.handed(l.vacate(driver.Undo(s, "n", "m3")))
	l.release(s, tokens.Last)
	if held = l.take(x, "x1"); held.Token != ahead+6 {
		t.Errorf("token %d: want %d", held.Token, ahead+6)
	}
}

// A hint may name the first of a run, but says nothing of its grant, which is one of several.
func heardRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	ctx, cancel := context.WithCancel(t.Context())
	ready, hints, over := make(chan struct{}), make(chan driver.Hint, 100), make(chan error, 1)
	listener := e.app(t, 5).Backend
	go func() {
		over <- listener.Listen(ctx, s, func() { close(ready) }, func(h driver.Hint) { hints <- h })
	}()
	defer func() {
		cancel()
		<-over
	}()
	select {
	case <-ready:
	case err := <-over:
		over <- err
		t.Skip(err) // where it can only be polled
	case <-time.After(patience):
		t.Fatal("the listener is not ready")
	}
	held := l.take(x, "x0")
	l.joins(s, "m1", "m2", "m3")
	tokens := l.release(x, held.Token, "m1", "m2", "m3")
	hint := within(t, patience, "the session hears of its run", hints)
	told := hint.Attempt == "m1" && hint.Grant.Token == tokens.First && slices.Equal(hint.Behind, []string{"m2", "m3"})
	if !told && (hint.Grant != (driver.Grant{}) || hint.Attempt != "" && hint.Attempt != "m1") { // all of it, or a hint to look
		t.Errorf("%+v", hint)
	}
	l.sees(s, nil, tokens, tokens.First, "m1", "m2", "m3")
}
