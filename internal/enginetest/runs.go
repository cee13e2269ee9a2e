package enginetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/driver"
)

var runs = inPlaces(own{
	{"a name is handed to several waiters of one session by one grant, in the order of the queue", grantedAsRun},
	{"a run ends before a waiter of another session, before one that is not passable, and before one that shares", endOfRun},
	{"a run has at most 64 grants", longRun},
	{"a run is released as a whole, with its last token, and the next is served", releasedRun},
	{"a run is settled on any of its members, and those behind it wait again where they stand", settledRun},
	{"a member that a run was settled on is a plain holder", plainAfterRun},
	{"those whom a run was settled before are granted the name singly, where that was asked for", singlyAfterRun},
	{"a run is settled by its session and a member's token only", unsettledRun},
	{"a member that gives up leaves the run to the others, and the last one leaves the name", leftRun},
	{"places in a run are given up, many at once", leftPlaces},
	{"a run that is broken is taken as a whole, and its other members wait again", brokenRun},
	{"a run whose session is dead is taken over as a whole", deadRun},
	{"what is listed of a run is each member with its token", claimedRun},
	{"in the wait-for graph a run neither holds nor waits", graphOfRun},
	{"Describe shows a run as one holder, and only those who wait behind it", describedRun},
	{"tokens of runs rise though the clock was set back", tokensOfRuns},
	{"the session of a run hears of it", heardRun},
	{"several requests join a queue together, in their order, with what each asks for", joinedTogether},
	{"several requests for a name that nobody has all wait behind the first, or none does", joinedFree},
	{"several requests of which one cannot join do not join", joinedNot},
	{"what joins while a run is released and given up is granted once, and nothing is lost", racedRuns},
})

// inBothWays has each test run again on an engine that a client attends, where that has shorter
// ways then.
func (w Wiring) inBothWays(tests []placed) (both []placed) {
	if w.Kind != MySQL && w.Kind != MariaDB {
		return tests
	}
	for _, plain := range tests {
		attended := plain
		attended.says += " (attended)"
		attended.run = func(t *testing.T, e *env) {
			e.attended = true
			plain.run(t, e)
		}
		both = append(both, plain, attended)
	}
	return both
}

func grantedAsRun(t *testing.T, e *env) {
	l := newLine(t, e)
	x, s := l.session(), l.session()
	held := l.take(x, "x0")
	l.joins(s, "m1", "m2", "m3")
	l.joins(x, "x1")
	l.sees(s, []string{"m1", "m2", "m3"}, driver.Range{}, 0)
	tokens := l.release(x, held.Token, "m1", "m2", "m3")
	l.sees(s, nil, tokens, tokens.First, "m1", "m2", "m3")
	l.sees(x, []string{"x1"}, driver.Range{}, 0)
	l.shows(s, "m1", tokens.Last, 3)
	if !l.look(s).Holder.Grant.Contended {
		t.Error("others may wait for a run")
	}
	next := l.vacate(driver.Release(l.held(s, tokens.Last), false)) // who did not hear of the others is told
	l.handed(next, "x1")
	l.shows(x, "x1", l.highest, 0)
}

func endOfRun(t *testing.T, e *env) {
	l := newLine(t, e)
	x, s := l.session(), l.session()
	held := l.take(x, "x0")
	reader := single(s, "r1")
	reader.Units, reader.Of = 1, driver.Readers
	l.joins(s, "m1")
	l.joins(x, "x1")
	l.joins(s, "m2", "m3")
	l.joins(x, "x2", "x3")
	l.joins(s, "m4", "m5")
	l.join(single(s, "m6"))
	l.joins(s, "m7")
	l.join(single(s, "m8"))
	l.joins(s, "m9", "m10")
	l.join(reader)
	l.joins(s, "m11")
	at, token := x, held.Token
	for _, step := range [][]string{
		{s, "m1"}, {x, "x1"}, {s, "m2", "m3"}, {x, "x2", "x3"}, {s, "m4", "m5"}, {s, "m6"}, {s, "m7"}, {s, "m8"}, {s, "m9", "m10"},
	} {
		token = l.release(at, token, step[1:]...).Last
		at = step[0]
	}
	share := l.release(s, token, "r1").Last
	next := l.vacate(driver.Release(driver.Held{Name: "n", Session: s, Token: share, Shared: true}, true))
	token = l.handed(next, "m11").Last
	l.release(s, token)
	l.e.free(t, "n")
}

func longRun(t *testing.T, e *env) {
	l := newLine(t, e)
	x, s := l.session(), l.session()
	held := l.take(x, "x0")
	var all []string
	for i := range driver.MaxRun + 6 {
		all = append(all, fmt.Sprintf("m%02d", i))
	}
	l.joins(s, all...)
	l.joins(x, "x1")
	tokens := l.release(x, held.Token, all[:driver.MaxRun]...)
	l.sees(s, all[driver.MaxRun:], tokens, tokens.First, all[:driver.MaxRun]...)
	l.shows(s, all[0], tokens.Last, driver.MaxRun+6)
	tokens = l.release(s, tokens.Last, all[driver.MaxRun:]...)
	l.shows(s, all[driver.MaxRun], tokens.Last, 6)
	l.release(s, tokens.Last, "x1")
	l.shows(x, "x1", l.highest, 0)
}

func releasedRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	for token := tokens.First; token < tokens.Last; token++ {
		l.stays(driver.Release(l.held(s, token), true))
		l.stays(driver.Release(l.held(s, token), false))
	}
	l.stays(driver.Release(l.held(x, tokens.Last), true))
	_, released, err := l.Backend.Batch(brief(t), nil, []driver.Held{l.held(s, tokens.Last)})
	if err != nil || released[0] {
		t.Fatalf("released as what nobody waits for: %v, %v", released, err)
	}
	l.sees(s, nil, tokens, tokens.First, "m1", "m2", "m3")
	l.release(s, tokens.Last)
	l.e.free(t, "n")
	l.stays(driver.Release(l.held(s, tokens.Last), true))

	tokens = l.run(s, "m4", "m5")
	l.joins(x, "x1", "x2")
	tokens = l.release(s, tokens.Last, "x1", "x2")
	l.sees(s, nil, driver.Range{}, 0)
	l.shows(x, "x1", tokens.Last, 1)
}

func settledRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	for at := range 3 {
		m := []string{fmt.Sprint("m", at, "a"), fmt.Sprint("m", at, "b"), fmt.Sprint("m", at, "c")}
		next := fmt.Sprint("x", at)
		tokens := l.run(s, m...)
		l.joins(x, next)
		token := tokens.First + int64(at)
		for range 2 { // the answer may have been lost
			if err := l.Backend.Settle(brief(t), l.held(s, token), false); err != nil {
				t.Fatal(err)
			}
			l.sees(s, m[at+1:], driver.Range{}, token, m[at])
			l.shows(s, m[at], token, 3-at)
		}
		for other := tokens.First; other <= tokens.Last; other++ {
			if other == token {
				continue
			}
			is(t, l.Backend.Settle(brief(t), l.held(s, other), false), driver.ErrNotHeld)
			l.stays(driver.Release(l.held(s, other), true))
		}
		if rest := m[at+1:]; len(rest) > 0 {
			token = l.release(s, token, rest...).Last
		}
		token = l.release(s, token, next).Last
		l.release(x, token)
		l.e.free(t, "n")
	}
}

func plainAfterRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	tokens := l.run(s, "m1", "m2", "m3")
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First+1), false); err != nil {
		t.Fatal(err)
	}
	event := driver.Event{Name: "n", Kind: "note", Session: s}
	change := func(h driver.Held) map[string]error {
		tx := beginTx(t, l.App, e.levels()[0])
		defer rollback(t, tx)
		return map[string]error{
			"MakeGuard": l.makeGuard(brief(t), h),
			"Guard":     l.guard(brief(t), tx, h),
		}
	}
	for token, held := range map[int64]bool{tokens.First: false, tokens.First + 1: true, tokens.Last: false} {
		h := l.held(s, token)
		did := change(h)
		did["SetHolds"] = l.Backend.SetHolds(brief(t), h, 2)
		did["Announce"] = l.Backend.Announce(brief(t), h, event)
		for what, err := range did {
			if what == "MakeGuard" && !held { // which may be nothing to make
				continue
			}
			if held && err != nil || !held && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%s with token %d of %d–%d, settled on the second: %v", what, token-tokens.First, 0, 2, err)
			}
		}
	}

	// What was reserved for the run is granted to nobody any more.
	asked := tokens.First + 2
	raised, err := l.Backend.Raise(brief(t), l.held(s, tokens.First+1), asked)
	if err != nil || raised < asked {
		t.Fatalf("raised to %d, %v: want %d", raised, err, asked)
	}
	l.shows(s, "m2", raised, 1)
	l.sees(s, []string{"m3"}, driver.Range{}, raised, "m2")
	l.highest = max(tokens.Last, raised)
	token := l.release(s, raised, "m3").Last

	l.joins(s, "m4", "m5")
	tokens = l.release(s, token, "m4", "m5")
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First), false); err != nil {
		t.Fatal(err)
	}
	if next, err := l.Backend.Downgrade(brief(t), l.held(s, tokens.First)); err != nil || len(next) > 0 {
		t.Fatal(next, err)
	}
	share := driver.Held{Name: "n", Session: s, Token: tokens.First, Shared: true}
	g, whole, err := l.Backend.Upgrade(brief(t), share, "m4")
	if err != nil || !whole || g.Token <= tokens.Last {
		t.Fatalf("%+v, %v, %v: want a token above %d", g, whole, err, tokens.Last)
	}
	l.highest = g.Token
	l.shows(s, "m4", g.Token, 1)
	token = l.release(s, g.Token, "m5").Last

	// Those who wait behind it leave, so that the short ways to release it are open.
	for _, batch := range []bool{false, true} {
		l.joins(s, "m6", "m7")
		tokens = l.release(s, token, "m6", "m7")
		if err := l.Backend.Settle(brief(t), l.held(s, tokens.First), false); err != nil {
			t.Fatal(err)
		}
		if next, err := l.Backend.Leave(brief(t), s, "n", []string{"m7"}); err != nil || len(next) > 0 {
			t.Fatal(next, err)
		}
		l.stays(driver.Release(l.held(s, tokens.Last), false))
		_, released, err := l.Backend.Batch(brief(t), nil, []driver.Held{l.held(s, tokens.Last)})
		if err != nil || released[0] {
			t.Fatalf("released with a token that nobody holds: %v, %v", released, err)
		}
		if batch {
			_, released, err = l.Backend.Batch(brief(t), nil, []driver.Held{l.held(s, tokens.First)})
			if err != nil || !released[0] {
				t.Fatal(released, err)
			}
		} else {
			l.handed(l.vacate(driver.Release(l.held(s, tokens.First), false)))
		}
		l.e.free(t, "n")
		token = l.take(s, "m8").Token
	}
}

func singlyAfterRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	tokens := l.run(s, "m1", "m2", "m3", "m4")
	if err := l.Backend.Settle(brief(t), l.held(s, tokens.First+1), true); err != nil {
		t.Fatal(err)
	}
	l.joins(s, "m5", "m6")
	token := l.release(s, tokens.First+1, "m3").Last
	token = l.release(s, token, "m4").Last
	l.release(s, token, "m5", "m6")
}

func unsettledRun(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	refused := func(session string, token int64) {
		t.Helper()
		is(t, l.Backend.Settle(brief(t), l.held(session, token), false), driver.ErrNotHeld)
	}
	refused(s, 1) // a name without a row
	tokens := l.run(s, "m1", "m2", "m3")
	refused(x, tokens.First)
	refused(s, tokens.First-1)
	refused(s, tokens.Last+1)
	l.vacate(driver.Undo(s, "n", "m2"))
	refused(s, tokens.First+1) // who has left
	if got := l.claims(s); len(got) != 2 || got["m1"] != tokens.Last || got["m3"] != tokens.Last {
		t.Errorf("claimed: %v", got)
	}
	l.release(s, tokens.Last)
	refused(s, tokens.First)
	refused(s, tokens.Last)
	held := l.take(s, "alone")
	if err := l.Backend.Settle(brief(t), held, false); err != nil {
		t.Errorf("what is held so already: %v", err)
	}
	refused(s, tokens.First)
	refused(s, held.Token-1)
}

// claims are the tokens of what a session has, by attempts.
func (l *line) claims(session string) map[string]int64 {
	l.t.Helper()
	list, err := l.Backend.Orphans(brief(l.t), session, 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	tokens := make(map[string]int64)
	for _, c := range list {
		tokens[c.Attempt] = c.Token
	}
	return tokens
}
