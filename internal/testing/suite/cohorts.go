package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var cohorts = inPlaces(own{
	{"a cohort that takes or joins a free name has it, with a token for each member", grantedFree},
	{"a cohort is one place in the queue, where each member counts", placeOfCohort},
	{"a queue of cohorts and others is served in its order", orderOfCohorts},
	{"a cohort is released as a whole, with its last token, and the next is served", releasedCohort},
	{"a cohort that is given up leaves its place, or the name", leftCohort},
	{"a member is detached from its cohort, and those behind it wait at the head of the queue", detachedMember},
	{"a member is detached by its session and a token of its cohort only", detachedNot},
	{"a member is detached with fewer behind it than were counted, or with none", detachedWithFewer},
	{"a detached member is a plain holder, and a cohort is none", plainAfterDetaching},
	{"a cohort that is broken is taken as a whole", brokenCohort},
	{"a cohort whose session is dead is taken over as a whole, and loses its place", deadCohort},
	{"tokens of cohorts rise though the clock was set back", tokensOfCohorts},
	{"a cohort is one claim of its session, with its last token", claimedCohort},
	{"in the wait-for graph a cohort waits and does not hold", graphOfCohort},
	{"Read, Names and Sessions show a cohort as one holder or one place, and count its members", describedCohort},
	{"the session of a cohort hears of its grant", heardCohort},
	{"what joins while a cohort is released and given up is granted once, and nothing is lost", racedCohorts},
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

// of has a session get the name as a cohort: another session holds it until that has joined.
func (l *line) of(r protocol.Request) protocol.Grant {
	l.t.Helper()
	before := request(l.session(), "before"+r.Attempt)
	g := l.take(before)
	l.join(r)
	return l.release(before.Session, g.Token, r)
}

func grantedFree(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	for i := range 3 { // a name without a row, one with a row, and one that was taken by a cohort
		r := cohort(s, fmt.Sprint("take", i), 3)
		g := l.take(r)
		l.shows(r, g, 0)
		l.sees(s, nil, r.Attempt, g)
		l.release(s, g.Token)
		r = cohort(s, fmt.Sprint("join", i), 2+i)
		g, outcome, err := drivertest.Join(brief(t), l.Backend, r)
		if err != nil || outcome != protocol.Done {
			t.Fatal(outcome, err)
		}
		l.granted(g, r)
		l.shows(r, g, 0)
		l.sees(s, nil, r.Attempt, g)
		l.release(s, g.Token)
		l.e.free(t, "n")
	}
}

func placeOfCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	holder := request(x, "x0")
	g := l.take(holder)
	l.join(cohort(s, "s1", 3), request(x, "x1"), cohort(s, "s2", 256))
	l.shows(holder, g, 260)
	l.sees(s, []string{"s1", "s2"}, "", protocol.Grant{})
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_waiters WHERE name = 'n'"), 3, "places")
	g = l.release(x, g.Token, cohort(s, "s1", 3))
	if !g.Contended {
		t.Error("others wait, and the grant does not say so")
	}
	l.shows(cohort(s, "s1", 3), g, 257)
	l.sees(s, []string{"s2"}, "s1", g)
	g = l.release(s, g.Token, request(x, "x1"))
	g = l.release(x, g.Token, cohort(s, "s2", 256))
	if g.Contended {
		t.Error("nobody waits, and the grant says otherwise")
	}
	l.shows(cohort(s, "s2", 256), g, 0)
	l.release(s, g.Token)
	l.e.free(t, "n")
}

func orderOfCohorts(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	readers := func(session, attempt string) protocol.Request {
		r := request(session, attempt)
		r.Units, r.Of = 1, protocol.Readers
		return r
	}
	leased := request(s, "leased")
	leased.Lease = time.Hour
	line := []protocol.Request{
		cohort(s, "s1", 2), cohort(x, "x1", 4), request(s, "s2"), cohort(s, "s3", 3), leased, cohort(x, "x2", 2),
		readers(s, "r1"), readers(x, "r2"), cohort(s, "s4", 2),
	}
	first := request(x, "x0")
	at, g := first, l.take(first)
	l.join(line...)
	for _, r := range line[:6] {
		g = l.release(at.Session, g.Token, r)
		at = r
	}
	share := l.release(at.Session, g.Token, line[6], line[7]).Token
	next := l.remove(protocol.Release(protocol.Held{Name: "n", Session: x, Token: share, Shared: true}, true, false))
	l.handed(next)
	next = l.remove(protocol.Undo(s, "n", "r1"))
	g = l.handed(next, line[8])
	l.release(s, g.Token)
	l.e.free(t, "n")
}

func releasedCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	r := cohort(s, "s1", 3)
	g := l.of(r)
	release := func(token int64) bool {
		t.Helper()
		_, released, err := drivertest.Batch(brief(t), l.Backend, nil, []protocol.Held{l.held(s, token)})
		require.NoError(t, err)
		return released[0]
	}
	for token := g.First; token < g.Token; token++ {
		l.stays(protocol.Release(l.held(s, token), true, false))
		l.stays(protocol.Release(l.held(s, token), false, false))
		if release(token) {
			t.Errorf("a batch has released it by token %d of %+v", token, g)
		}
	}
	l.stays(protocol.Release(l.held(x, g.Token), true, false))
	l.shows(r, g, 0)
	if !release(g.Token) {
		t.Error("a batch has not released it")
	}
	l.e.free(t, "n")
	l.stays(protocol.Release(l.held(s, g.Token), true, false))

	g = l.of(cohort(s, "s2", 2))
	l.join(cohort(x, "x1", 2), request(x, "x2"))
	if release(g.Token) {
		t.Error("a batch has released what others wait for")
	}
	next := l.remove(protocol.Release(l.held(s, g.Token), false, false)) // who did not hear of the others is told
	g = l.handed(next, cohort(x, "x1", 2))
	l.sees(s, nil, "", protocol.Grant{})
	l.shows(cohort(x, "x1", 2), g, 1)
}

func leftCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	holder := request(x, "x0")
	g := l.take(holder)
	l.join(cohort(s, "s1", 3), cohort(s, "s2", 2), request(x, "x1"))
	l.handed(l.remove(protocol.Undo(s, "n", "s1")))
	l.shows(holder, g, 3)
	l.stays(protocol.Undo(s, "n", "s1"))
	l.stays(protocol.Undo(x, "n", "s2"))
	g = l.release(x, g.Token, cohort(s, "s2", 2))
	l.stays(protocol.Undo(x, "n", "s2"))
	g = l.handed(l.remove(protocol.Undo(s, "n", "s2")), request(x, "x1"))
	l.shows(request(x, "x1"), g, 0)
	l.stays(protocol.Undo(s, "n", "s2"))
	l.release(x, g.Token)
	l.e.free(t, "n")
}

// dissolve breaks what the name's holder has.
func (l *line) dissolve(self string, h protocol.Holder) []protocol.Handoff {
	l.t.Helper()
	return l.remove(protocol.Break(self, "n", h, protocol.Event{Name: "n", Kind: "broken", Token: h.Grant.Token,
		Session: h.Session}))
}

func brokenCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	g := l.of(cohort(s, "s1", 3))
	l.join(cohort(x, "x1", 2), cohort(s, "s2", 2))
	holder := l.look(x).Holder
	part := holder
	part.Grant.Token = g.First
	l.stays(protocol.Break(x, "n", part, protocol.Event{Name: "n", Kind: "broken"}))
	next := l.handed(l.dissolve(x, holder), cohort(x, "x1", 2))
	l.shows(cohort(x, "x1", 2), next, 2)
	for token := g.First; token <= g.Token; token++ {
		l.stays(protocol.Release(l.held(s, token), true, false))
	}
	d := behind(cohort(s, "s1", 3), "rest", 1)
	d.Token = g.First
	is(t, l.detach(s, g.Token, d), driver.ErrNotHeld)

	// Nobody is granted a name that rests.
	e.exec(t, "UPDATE dblock_locks SET rests_until = ? WHERE name = 'n'", e.now(t)+time.Hour.Microseconds())
	l.handed(l.dissolve(x, l.look(x).Holder))
	l.sees(s, []string{"s2"}, "", protocol.Grant{})
	e.exec(t, "UPDATE dblock_locks SET rests_until = 0 WHERE name = 'n'")
	l.handed(l.remove(protocol.TakeOver(x, "n", protocol.Holder{})), cohort(s, "s2", 2))

	// A place is broken as a whole, too.
	l.join(cohort(x, "x2", 3), request(x, "x3"))
	l.handed(l.dissolve(s, protocol.Holder{Session: x, Attempt: "x2"}))
	assert.Equal(t, l.look("").Waiters, 1, "wait")
}

func deadCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	g := l.of(cohort(s, "s1", 3))
	l.join(cohort(s, "s2", 4), cohort(x, "x1", 2), request(x, "x2"))
	holder := l.look(x).Holder
	l.stays(protocol.TakeOver(x, "n", holder)) // it lives
	e.end(t, s)
	if left := l.look(x).Holder.Left; left > 0 {
		t.Errorf("the holder is dead, and has %v left", left)
	}
	next := l.handed(l.remove(protocol.TakeOver(x, "n", holder)), cohort(x, "x1", 2))
	l.shows(cohort(x, "x1", 2), next, 1)
	d := behind(cohort(s, "s1", 3), "rest", 1)
	d.Token = g.First
	is(t, l.detach(s, g.Token, d), driver.ErrNotHeld)
	if claims := l.claims(s); len(claims) > 0 {
		t.Errorf("the dead have %v", claims)
	}
}

func tokensOfCohorts(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	g := l.take(request(x, "x0"))
	l.join(cohort(s, "s1", 3), cohort(s, "s2", 2))
	ahead := e.now(t) + time.Hour.Microseconds()
	e.exec(t, "UPDATE dblock_locks SET token = ? WHERE name = 'n'", ahead)
	for _, step := range []struct {
		from  string
		next  protocol.Request
		first int64
	}{{x, cohort(s, "s1", 3), 1}, {s, cohort(s, "s2", 2), 4}} {
		g = l.release(step.from, g.Token, step.next)
		if g.First != ahead+step.first {
			t.Fatalf("%+v: want tokens from %d on", g, ahead+step.first)
		}
	}
	l.release(s, g.Token)
	if g = l.take(request(x, "x1")); g.Token != ahead+6 {
		t.Errorf("token %d: want %d", g.Token, ahead+6)
	}
}

func claimedCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	g := l.of(cohort(s, "s1", 3))
	l.join(cohort(s, "s2", 2))
	up, err := l.Backend.Upkeep(brief(t), "s")
	require.NoError(t, err)
	defer up.Close()
	list, err := up.Claims(brief(t), s, nil)
	require.NoError(t, err)
	claims := make(map[string]int64)
	for _, c := range list {
		claims[c.Attempt] = c.Token
	}
	want := map[string]int64{"s1": g.Token, "s2": 0}
	for _, got := range []map[string]int64{claims, l.claims(s)} {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("claimed: %v: want %v", got, want)
		}
	}
}

// The name does not tell which member of a cohort has it.
func graphOfCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	r := cohort(s, "s1", 3)
	g := l.of(r)
	l.join(cohort(x, "x1", 2))
	if got := l.graph("s1"); len(got) > 0 {
		t.Errorf("a cohort that has the name waits: %v", got)
	}
	if got := l.graph("x1"); !slices.Equal(got, []string{"x1"}) {
		t.Errorf("one waits behind a cohort: %v", got)
	}
	d := behind(r, "rest", 1)
	d.Token = g.First + 1
	require.NoError(t, l.detach(s, g.Token, d))
	for _, from := range []string{"x1", "rest"} {
		want := []string{"[s1]", from}
		if got := l.graph(from); !slices.Equal(got, want) {
			t.Errorf("a member was detached: %v: want %v", got, want)
		}
	}
}

func describedCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	r := cohort(s, "s1", 3)
	g := l.of(r)
	check := func(thread string, g protocol.Grant, places, waiters int, queue ...string) {
		t.Helper()
		for _, most := range []int{1, 2, driver.All} {
			states, err := l.Backend.Read(brief(t), "", []string{"n"}, most)
			if err != nil || len(states) != 1 || len(states[0].Holders) != 1 {
				t.Fatalf("%+v, %v", states, err)
			}
			d := states[0]
			if h := d.Holders[0]; h.Attempt != "s1" || h.Thread != thread || h.Grant.First != g.First ||
				h.Grant.Token != g.Token || d.Token != l.highest {
				t.Errorf("%+v: want %+v", d, g)
			}
			var attempts []string
			for _, w := range d.Queue {
				attempts = append(attempts, w.Attempt)
			}
			if want := queue[:min(most, len(queue))]; !slices.Equal(attempts, want) || d.Waiters != waiters {
				t.Errorf("at most %d: %v, %d in all: want %v, %d", most, attempts, d.Waiters, want, waiters)
			}
		}
		if names, err := l.Backend.Names(brief(t), driver.Filter{Contended: true}, 10); err != nil ||
			len(names) != min(waiters, 1) {
			t.Errorf("names with waiters: %v, %v", names, err)
		}
		for _, d := range e.details(t, l) {
			if d.ID == s && (d.Held != 1 || d.Waiting != places) {
				t.Errorf("the session has %d and waits in %d places: want 1 and %d", d.Held, d.Waiting, places)
			}
		}
	}
	check("s1", g, 0, 0)
	l.join(cohort(x, "x1", 2), request(x, "x2"))
	check("s1", g, 0, 3, "x1", "x2")
	d := behind(r, "rest", 1)
	d.Token = g.First + 1
	require.NoError(t, l.detach(s, g.Token, d))
	check(d.Thread, protocol.Grant{First: d.Token, Token: d.Token}, 1, 4, "rest", "x1", "x2")
}

func (e *env) details(t *testing.T, l *line) []driver.SessionDetail {
	t.Helper()
	sessions, err := l.Backend.Sessions(brief(t), driver.SessionFilter{}, "", 100)
	if err != nil || len(sessions) < 2 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	return sessions
}

// A hint has the grant, or none: then the session looks.
func heardCohort(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	ctx, cancel := context.WithCancel(t.Context())
	ready, hints, over := make(chan struct{}), make(chan protocol.Hint, 100), make(chan error, 1)
	listener := e.app(t, 5).Backend
	go func() {
		over <- drivertest.Listen(ctx, listener, s, func() { close(ready) }, func(h protocol.Hint) { hints <- h })
	}()
	defer func() {
		cancel()
		<-over
	}()
	select {
	case <-ready:
	case err := <-over:
		over <- err
		require.ErrorIs(t, err, driver.ErrUnsupported)
		t.Skip(err) // it can only be polled
	case <-time.After(patience):
		t.Fatal("the listener is not ready")
	}
	held := l.take(request(x, "x0"))
	l.join(cohort(s, "s1", 3))
	g := l.release(x, held.Token, cohort(s, "s1", 3))
	hint := within(t, patience, "the session hears of its cohort", hints)
	told := hint.Attempt == "s1" && hint.Grant.First == g.First && hint.Grant.Token == g.Token
	if !told && (hint.Grant != (protocol.Grant{}) || hint.Attempt != "" && hint.Attempt != "s1") {
		t.Errorf("%+v", hint)
	}
	l.sees(s, nil, "s1", g)
}

// unlessBusy repeats a call that has done nothing because of another.
func unlessBusy(call func() error) error {
	for {
		if err := call(); !errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrRetry) {
			return err
		}
	}
}

func racedCohorts(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	for i := range 12 {
		r, other := cohort(s, fmt.Sprint("s", i), 3), cohort(x, fmt.Sprint("x", i), 2)
		g := l.of(r)
		var mu sync.Mutex
		var next []protocol.Handoff
		remove := func(r protocol.Removal) {
			var n []protocol.Handoff
			if err := unlessBusy(func() (err error) {
				n, _, err = drivertest.Remove(brief(t), l.Backend, r)
				return
			}); err != nil {
				t.Error(err)
			}
			mu.Lock()
			next = append(next, n...)
			mu.Unlock()
		}
		var outcome protocol.Outcome
		var grant protocol.Grant
		var all sync.WaitGroup
		all.Go(func() { remove(protocol.Release(l.held(s, g.Token), true, false)) })
		all.Go(func() { remove(protocol.Undo(s, "n", r.Attempt)) })
		all.Go(func() {
			if err := unlessBusy(func() (err error) {
				grant, outcome, err = drivertest.Join(brief(t), l.Backend, other)
				return
			}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		switch {
		case t.Failed():
			return
		case outcome == protocol.Done:
			l.handed(next)
			l.granted(grant, other)
		default:
			grant = l.handed(next, other)
		}
		l.sees(s, nil, "", protocol.Grant{})
		l.release(x, grant.Token)
		e.free(t, "n")
	}
}
