package suite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
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

// reenter has an owner take its name over.
func reenter(ctx context.Context, b driver.Names, r protocol.Request) (protocol.Grant, bool, error) {
	result, err := driver.Do(ctx, b, protocol.Reenter{Request: r})
	return result.Grant, result.Done(), err
}

// raiseOf raises the token of an attempt's lock.
func raiseOf(ctx context.Context, b driver.Names, h protocol.Held, attempt string, token int64) (int64, error) {
	result, err := driver.Do(ctx, b, protocol.Raise{Held: h, Attempt: attempt, To: token})
	return result.Grant.Token, err
}

// endRest ends the rest of a name.
func endRest(ctx context.Context, b driver.Names, name string, token int64) (bool, error) {
	e := protocol.Event{Name: name, Kind: "broken"}
	result, err := driver.Do(ctx, b, protocol.EndRest{Name: name, Token: token, Event: e})
	return result.Done(), err
}

func (l *line) session() string {
	l.t.Helper()
	s := id()
	require.NoError(l.t, l.Backend.OpenSession(brief(l.t), driver.Session{ID: s, Host: "h", TTL: time.Hour}))
	return s
}

// request is one for the whole name. Its thread is its attempt.
func request(session, attempt string) protocol.Request {
	return protocol.Request{Name: "n", Session: session, Host: "h", Thread: attempt, Attempt: attempt, Members: 1,
		Patient: true}
}

// cohort is one of several members.
func cohort(session, attempt string, members int) protocol.Request {
	r := request(session, attempt)
	r.Members = members
	return r
}

func (l *line) held(session string, token int64) protocol.Held {
	return protocol.Held{Name: "n", Session: session, Token: token}
}

// take takes the free name.
func (l *line) take(r protocol.Request) protocol.Grant {
	l.t.Helper()
	g, taken, err := drivertest.Take(brief(l.t), l.Backend, r)
	if err != nil || !taken {
		l.t.Fatal(taken, err)
	}
	l.granted(g, r)
	return g
}

// granted checks that a grant has a token for each member, above all others.
func (l *line) granted(g protocol.Grant, r protocol.Request) {
	l.t.Helper()
	if g.First <= l.highest || g.Token-g.First != int64(r.Members)-1 || g.Lease != r.Lease {
		l.t.Fatalf("%s was granted %+v, after token %d: want %d tokens", r.Attempt, g, l.highest, r.Members)
	}
	l.highest = g.Token
}

// join queues requests up.
func (l *line) join(rs ...protocol.Request) {
	l.t.Helper()
	for _, r := range rs {
		if _, outcome, err := drivertest.Join(brief(l.t), l.Backend, r); err != nil || outcome != protocol.Queued {
			l.t.Fatal(outcome, err)
		}
	}
}

// remove takes something off the name that must be there.
func (l *line) remove(r protocol.Removal) []protocol.Handoff {
	l.t.Helper()
	next, left, err := drivertest.Remove(brief(l.t), l.Backend, r)
	if err != nil || !left {
		l.t.Fatal(left, err)
	}
	return next
}

// release releases what the session holds with this token, and checks who is next.
func (l *line) release(session string, token int64, next ...protocol.Request) protocol.Grant {
	l.t.Helper()
	return l.handed(l.remove(protocol.Release(l.held(session, token), true, false)), next...)
}

// stays checks that there is nothing to take off the name.
func (l *line) stays(r protocol.Removal) {
	l.t.Helper()
	if next, left, err := drivertest.Remove(brief(l.t), l.Backend, r); err != nil || left || len(next) > 0 {
		l.t.Fatalf("%+v: %v, %v, %v", r, next, left, err)
	}
}

// handed checks that these requests were granted the name, and returns the last grant. With none
// nobody was.
func (l *line) handed(next []protocol.Handoff, want ...protocol.Request) (g protocol.Grant) {
	l.t.Helper()
	if len(next) != len(want) {
		l.t.Fatalf("%+v were granted the name: want %+v", next, want)
	}
	for i, n := range next {
		if n.Session != want[i].Session || n.Attempt != want[i].Attempt {
			l.t.Fatalf("%s of %s was granted the name: want %+v", n.Attempt, n.Session, want[i])
		}
		g = n.Grant
		l.granted(g, want[i])
	}
	return g
}

// detach leaves one member of a cohort as its only holder, with the members behind it as rest.
func (l *line) detach(session string, last int64, d protocol.Detachment) error {
	l.t.Helper()
	result, err := driver.Do(brief(l.t), l.Backend, protocol.Detach{Held: l.held(session, last), Member: d})
	if len(result.Next) > 0 {
		l.t.Fatalf("%+v were granted a name that is held", result.Next)
	}
	return err
}

// look is the state as a session sees it.
func (l *line) look(session string) driver.State {
	l.t.Helper()
	states, err := l.Backend.Read(brief(l.t), session, []string{"n"}, 0)
	if err != nil || len(states) != 1 {
		l.t.Fatal(states, err)
	}
	return states[0]
}

// sees checks what a session has of the name: the attempts that wait, and a grant, if it has one.
func (l *line) sees(session string, queued []string, attempt string, g protocol.Grant) {
	l.t.Helper()
	s := l.look(session)
	slices.Sort(s.Queued)
	if !slices.Equal(s.Queued, queued) {
		l.t.Errorf("%v are queued: want %v", s.Queued, queued)
	}
	var want []driver.OwnGrant
	if attempt != "" {
		g.Contended = s.Waiters > 0
		want = append(want, driver.OwnGrant{Attempt: attempt, Grant: g})
	}
	if !slices.Equal(s.Granted, want) {
		l.t.Errorf("granted: %+v: want %+v", s.Granted, want)
	}
}

// shows checks who has the name, with which tokens, in everybody's eyes, and how many wait.
func (l *line) shows(r protocol.Request, g protocol.Grant, waiters int) {
	l.t.Helper()
	s := l.look("")
	h := s.Holder
	if h.Session != r.Session || h.Attempt != r.Attempt || h.Thread != r.Thread || h.Host != r.Host ||
		h.Grant.First != g.First || h.Grant.Token != g.Token {
		l.t.Errorf("the holder is %+v: want %+v with %+v", h, r, g)
	}
	if there := l.e.waiting(l.t, "n"); s.Waiters != waiters || there != waiters {
		l.t.Errorf("%d waiters are counted, %d are there: want %d", s.Waiters, there, waiters)
	}
	if s.Ready || s.Head != (protocol.Holder{}) {
		l.t.Errorf("ready: %v, head: %+v", s.Ready, s.Head)
	}
}

// claims are the tokens of what a session has, by attempts.
func (l *line) claims(session string) map[string]int64 {
	l.t.Helper()
	list, err := l.Backend.Claims(brief(l.t), session, 1000)
	require.NoError(l.t, err)
	tokens := make(map[string]int64)
	for _, c := range list {
		tokens[c.Attempt] = c.Token
	}
	return tokens
}

// graph lists the attempts of the graph from a place on, in the order of the alphabet, holders in
// brackets.
func (l *line) graph(from string) (list []string) {
	l.t.Helper()
	waits, err := l.Backend.WaitGraph(brief(l.t), []driver.Waiting{{Name: "n", Attempt: from}})
	require.NoError(l.t, err)
	for _, w := range waits {
		if w.Holds {
			w.Attempt = "[" + w.Attempt + "]"
		}
		list = append(list, w.Attempt)
	}
	slices.Sort(list)
	return list
}
