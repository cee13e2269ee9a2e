package suite

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// behind is the place of the members behind one of a cohort.
func behind(r protocol.Request, attempt string, members int) protocol.Detachment {
	rest := request(r.Session, attempt)
	rest.Members = members
	return protocol.Detachment{Host: r.Host, Thread: "member of " + r.Thread, Behind: rest}
}

// detached is how a member of a cohort is shown, once it is alone.
func detached(r protocol.Request, d protocol.Detachment) protocol.Request {
	r.Host, r.Thread, r.Members = d.Host, d.Thread, 1
	return r
}

func detachedMember(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	for at := range 3 {
		r, other := cohort(s, fmt.Sprint("s", at), 3), cohort(x, fmt.Sprint("x", at), 2)
		g := l.of(r)
		l.join(other)
		d := behind(r, fmt.Sprint("rest", at), 2-at)
		d.Token = g.First + int64(at)
		alone := protocol.Grant{First: d.Token, Token: d.Token}
		for range 2 { // the answer may have been lost
			require.NoError(t, l.detach(s, g.Token, d))
			l.shows(detached(r, d), alone, 2-at+2)
			var queued []string
			if at < 2 {
				queued = append(queued, d.Behind.Attempt)
			}
			l.sees(s, queued, r.Attempt, alone)
		}
		for token := g.First; token <= g.Token; token++ {
			if token != d.Token {
				l.stays(protocol.Release(l.held(s, token), true, false))
			}
		}
		token := d.Token
		if at < 2 {
			token = l.release(s, token, d.Behind).Token
		}
		token = l.release(s, token, other).Token
		l.release(x, token)
		l.e.free(t, "n")
	}
}

func detachedNot(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	r := cohort(s, "s1", 3)
	refused := func(session string, last, token int64) {
		t.Helper()
		d := behind(r, "rest", 1)
		d.Token = token
		is(t, l.detach(session, last, d), driver.ErrNotHeld)
	}
	refused(s, 1, 1) // a name without a row
	g := l.of(r)
	refused(x, g.Token, g.First)
	refused(s, g.Token-1, g.First)
	refused(s, g.Token, g.First-1)
	refused(s, g.Token, g.Token+1)
	l.shows(r, g, 0)
	d := behind(r, "rest", 1)
	d.Token = g.First + 1
	require.NoError(t, l.detach(s, g.Token, d))
	refused(s, g.Token, g.First) // another member has been detached
	refused(s, g.Token, g.Token)
	rest := l.release(s, d.Token, d.Behind)
	refused(s, g.Token, d.Token)
	l.release(s, rest.Token)
	refused(s, rest.Token, rest.Token)
	l.e.free(t, "n")
}

func detachedWithFewer(t *testing.T, e *env) {
	l := newLine(t, e)
	s, x := l.session(), l.session()
	r := cohort(s, "s1", 5)
	g := l.of(r)
	l.join(request(x, "x1"))
	d := behind(r, "rest", 2) // of 4
	d.Token = g.First
	require.NoError(t, l.detach(s, g.Token, d))
	l.shows(detached(r, d), protocol.Grant{First: d.Token, Token: d.Token}, 3)

	// The rest is a cohort as any other, and so is detached.
	l.highest = g.Token
	g = l.release(s, d.Token, d.Behind)
	again := behind(d.Behind, "", 0)
	again.Token = g.First
	require.NoError(t, l.detach(s, g.Token, again))
	l.shows(detached(d.Behind, again), protocol.Grant{First: again.Token, Token: again.Token}, 1)
	l.handed(l.remove(protocol.Undo(s, "n", "rest")), request(x, "x1"))
}

func plainAfterDetaching(t *testing.T, e *env) {
	l := newLine(t, e)
	s := l.session()
	r := cohort(s, "s1", 3)
	g := l.of(r)
	is(t, l.downgrade(l.held(s, g.Token)), driver.ErrNotHeld)
	_, err := raiseOf(brief(t), l.Backend, l.held(s, g.Token), r.Attempt, g.Token+10)
	is(t, err, driver.ErrNotHeld)
	l.shows(r, g, 0)
	d := behind(r, "rest", 1)
	d.Token = g.First + 1
	require.NoError(t, l.detach(s, g.Token, d))
	for token, held := range map[int64]bool{g.First: false, g.First + 1: true, g.Token: false} {
		h := l.held(s, token)
		note := protocol.Event{Name: "n", Kind: "note", Session: s}
		_, err := l.Backend.Run(brief(t), protocol.Announce{Held: h, Event: note})
		if held && err != nil || !held && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("an event with token %d of 0–2, the second was detached: %v", token-g.First, err)
		}
		l.guards(h, held)
	}

	// Tokens that were reserved for the cohort are granted to no other request.
	raised, err := raiseOf(brief(t), l.Backend, l.held(s, d.Token), r.Attempt, g.Token)
	if err != nil || raised != g.Token {
		t.Fatalf("raised to %d, %v: want %d", raised, err, g.Token)
	}
	rest := l.release(s, raised, d.Behind)
	l.join(cohort(s, "s2", 2))
	g = l.release(s, rest.Token, cohort(s, "s2", 2))
	d = behind(cohort(s, "s2", 2), "rest2", 1)
	d.Token = g.First
	require.NoError(t, l.detach(s, g.Token, d))
	is(t, l.downgrade(l.held(s, d.Token)), nil)
	share := protocol.Held{Name: "n", Session: s, Token: d.Token, Shared: true}
	upgraded, err := driver.Do(brief(t), l.Backend, protocol.Upgrade{Held: share, Attempt: "s2"})
	if err != nil || !upgraded.Done() {
		t.Fatal(upgraded, err)
	}
	whole := upgraded.Grant
	l.granted(whole, request(s, "s2"))
	l.shows(detached(cohort(s, "s2", 2), d), whole, 1)
	l.release(s, whole.Token, d.Behind)
}

func (l *line) downgrade(h protocol.Held) error {
	_, err := l.Backend.Run(brief(l.t), protocol.Downgrade{Held: h})
	return err
}

// guards checks whether a lock can be guarded, on an engine with transactions.
func (l *line) guards(h protocol.Held, held bool) {
	l.t.Helper()
	if l.e.wiring.Through != nil {
		return
	}
	tx := beginTx(l.t, l.App, l.e.levels()[0])
	defer rollback(l.t, tx)
	if err := l.makeGuard(brief(l.t), h); held && err != nil { // otherwise there may be nothing to make
		l.t.Errorf("MakeGuard: %v", err)
	}
	if err := l.guard(brief(l.t), tx, h); held && err != nil || !held && !errors.Is(err, driver.ErrNotHeld) {
		l.t.Errorf("Guard of a lock that is held, %v: %v", held, err)
	}
}
