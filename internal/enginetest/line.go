package enginetest

import (
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// line is a name and its queue, at the level of the driver.
type line struct {
	App
	t       *testing.T
	e       *env
	highest int64 // of the tokens granted so far
}

func newLine(t *testing.T, e *env) *line {
	l := &line{App: e.app(t, 5), t: t, e: e}
	if e.attended {
		t.Cleanup(l.Backend.Attend("", time.Minute))
	}
	return l
}

func (l *line) session() string {
	l.t.Helper()
	s := id()
	if err := l.Backend.OpenSession(brief(l.t), driver.Session{ID: s, Host: "h", TTL: time.Hour}); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// passable is a request that may be part of a run. Its thread is its attempt.
func passable(session, attempt string) driver.Request {
	return driver.Request{Name: "n", Session: session, Host: "h", Thread: attempt, Attempt: attempt, Passable: true, Wait: true}
}

// single is a request that may not.
func single(session, attempt string) driver.Request {
	r := passable(session, attempt)
	r.Passable = false
	return r
}

func (l *line) held(session string, token int64) driver.Held {
	return driver.Held{Name: "n", Session: session, Token: token}
}

func (l *line) take(session, attempt string) driver.Held {
	l.t.Helper()
	g, taken, err := l.Backend.Take(brief(l.t), passable(session, attempt))
	if err != nil || !taken {
		l.t.Fatal(taken, err)
	}
	l.highest = g.Token
	return l.held(session, g.Token)
}

// join queues requests up, all by one call.
func (l *line) join(rs ...driver.Request) {
	l.t.Helper()
	if _, outcome, err := l.Backend.Enqueue(brief(l.t), rs...); err != nil || outcome != driver.Queued {
		l.t.Fatal(outcome, err)
	}
}

// joins queues up attempts of a session that may be part of a run.
func (l *line) joins(session string, attempts ...string) {
	l.t.Helper()
	var rs []driver.Request
	for _, attempt := range attempts {
		rs = append(rs, passable(session, attempt))
	}
	l.join(rs...)
}

// vacate takes something off the name that must be there.
func (l *line) vacate(v driver.Vacancy) []driver.Handoff {
	l.t.Helper()
	next, left, err := l.Backend.Vacate(brief(l.t), v)
	if err != nil || !left {
		l.t.Fatal(left, err)
	}
	return next
}

// release releases what the session holds with this token, and checks who is next.
func (l *line) release(session string, token int64, attempts ...string) driver.Range {
	l.t.Helper()
	return l.handed(l.vacate(driver.Release(l.held(session, token), true)), attempts...)
}

// stays checks that there is nothing to take off the name.
func (l *line) stays(v driver.Vacancy) {
	l.t.Helper()
	if next, left, err := l.Backend.Vacate(brief(l.t), v); err != nil || left || len(next) > 0 {
		l.t.Fatalf("%+v: %v, %v, %v", v, next, left, err)
	}
}

// handed checks that these attempts were granted the name, as one run if they are several, with
// tokens above all others, and returns the tokens. With no attempts nobody was.
func (l *line) handed(next []driver.Handoff, attempts ...string) driver.Range {
	l.t.Helper()
	var got []string
	for _, n := range next {
		got = append(got, n.Attempt)
	}
	if !slices.Equal(got, attempts) {
		l.t.Fatalf("%v were granted the name: want %v", got, attempts)
	}
	if len(next) == 0 {
		return driver.Range{}
	}
	tokens := driver.Range{First: next[0].Grant.Token, Last: next[0].Grant.Token + int64(len(next)) - 1}
	for i, n := range next {
		want := driver.Grant{Token: tokens.First + int64(i), Contended: n.Grant.Contended, Run: tokens}
		if len(next) == 1 {
			want.Run = driver.Range{}
		} else {
			want.Contended = true
		}
		if n.Grant != want {
			l.t.Fatalf("%s was granted %+v: want %+v", n.Attempt, n.Grant, want)
		}
	}
	if tokens.First <= l.highest {
		l.t.Fatalf("token %d after %d", tokens.First, l.highest)
	}
	l.highest = tokens.Last
	return tokens
}

// run has a session get a run: another session holds the name until all have joined.
func (l *line) run(session string, attempts ...string) driver.Range {
	l.t.Helper()
	other := l.session()
	held := l.take(other, "before"+attempts[0])
	l.joins(session, attempts...)
	return l.release(other, held.Token, attempts...)
}

// look is the state as a session sees it, without rows that nobody looked for.
func (l *line) look(session string) driver.State {
	l.t.Helper()
	states, err := l.Backend.Look(brief(l.t), session, []string{"n"})
	if err != nil || len(states) != 1 {
		l.t.Fatal(states, err)
	}
	return states[0]
}

// sees checks what a session has of the name: its waiting attempts, and its grants, whose tokens
// are those from the first on, and which are of a run.
func (l *line) sees(session string, waiting []string, run driver.Range, first int64, granted ...string) {
	l.t.Helper()
	s := l.look(session)
	slices.Sort(s.Queued)
	if !slices.Equal(s.Queued, waiting) {
		l.t.Errorf("%v are queued: want %v", s.Queued, waiting)
	}
	var want []driver.Own
	for i, attempt := range granted {
		want = append(want, driver.Own{Attempt: attempt, Grant: driver.Grant{Token: first + int64(i), Contended: s.Waiters > 0, Run: run}})
	}
	if !slices.Equal(s.Granted, want) {
		l.t.Errorf("granted: %+v: want %+v", s.Granted, want)
	}
}

// shows checks who has the name, with which token, in everybody's eyes, and how many places there
// are.
func (l *line) shows(session, attempt string, token int64, places int) {
	l.t.Helper()
	s := l.look("")
	h := s.Holder
	if h.Session != session || h.Attempt != attempt || h.Thread != attempt || h.Host != "h" || h.Grant.Token != token {
		l.t.Errorf("the holder is %+v: want %s of %s with token %d", h, attempt, session, token)
	}
	if there := l.e.waiting(l.t, "n"); s.Waiters != places || there != places {
		l.t.Errorf("%d places are counted, %d are there: want %d", s.Waiters, there, places)
	}
	if s.Ready || s.Head != (driver.Holder{}) {
		l.t.Errorf("ready: %v, head: %+v", s.Ready, s.Head)
	}
}
