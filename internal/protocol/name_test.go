package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

const (
	// began is when each table begins, in microseconds: the first token.
	began = 100

	tick = time.Microsecond
)

// request is one for the whole name. The session of attempt "a1" is "A", and so is its host: an
// attempt tells by its first letter whose it is.
func request(attempt string, options ...func(*protocol.Request)) protocol.Request {
	session := strings.ToUpper(attempt[:1])
	r := protocol.Request{Name: "n", Session: session, Host: session, Thread: attempt, Attempt: attempt}
	for _, o := range options {
		o(&r)
	}
	return r
}

func members(n int) func(*protocol.Request) { return func(r *protocol.Request) { r.Members = n } }

func permits(units, of int) func(*protocol.Request) {
	return func(r *protocol.Request) { r.Units, r.Of = units, of }
}

func reads(r *protocol.Request) { r.Units, r.Of = 1, protocol.Readers }

func leased(r *protocol.Request) { r.Lease = 5 * tick }

func rests(r *protocol.Request) { r.MinHold = 5 * tick }

func owned(host, thread string) func(*protocol.Request) {
	return func(r *protocol.Request) { r.Host, r.Thread = host, thread }
}

// table is a name in memory, and how sessions and guards stand.
type table struct {
	memory.Names
	t       testing.TB
	now     int64
	over    string // the sessions that are over their time, by their letters
	dead    string // those that are marked dead
	guarded string // the attempt whose guard another transaction has
	seized  []string
}

func newTable(t testing.TB) *table {
	tab := &table{t: t, now: began}
	tab.Names = memory.Names{
		Now:   func() int64 { return tab.now },
		Alive: func(session string) bool { return !strings.Contains(tab.over+tab.dead, session) },
		Expire: func(session string) bool {
			if strings.Contains(tab.over, session) {
				tab.over, tab.dead = strings.ReplaceAll(tab.over, session, ""), tab.dead+session
			}
			return strings.Contains(tab.dead, session)
		},
		Seize: func(attempt string, holdOff bool) error {
			if attempt == tab.guarded {
				return fmt.Errorf("%w: %w", protocol.ErrBusy, protocol.ErrGuarded)
			}
			if holdOff {
				attempt += "!"
			}
			tab.seized = append(tab.seized, attempt)
			return nil
		},
	}
	return tab
}

// join has requests join the queue, one microsecond after the other.
func (tab *table) join(requests ...protocol.Request) {
	tab.t.Helper()
	for _, r := range requests {
		if _, _, err := tab.Apply(protocol.Join{Request: r}); err != nil {
			tab.t.Fatal(err)
		}
		tab.now++
	}
}

// plainly runs an op, of which only the error and the rows tell.
func plainly(op protocol.Op) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		_, err := op.Apply(n)
		return "", err
	}
}

// does runs a transition, and tells what it answered, what it left, and what it sent.
func (tab *table) does(transition func(n *protocol.Name) (string, error)) string {
	var said string
	_, left, err := tab.Apply(drivertest.Func{Name: "n", Do: func(n *protocol.Name) (err error) {
		said, err = transition(n)
		return err
	}})
	if err != nil {
		return "error: " + strings.SplitN(err.Error(), ":", 2)[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", said, tab.shows())
	for _, h := range left.Handoffs {
		fmt.Fprintf(&b, "; to %s=%s", h.Attempt, grant(h.Grant))
	}
	for _, notice := range left.Notices {
		fmt.Fprintf(&b, "; tell %s %s", notice.Session, notice.Hint.Attempt)
		if notice.Hint.Grant.Token != 0 {
			fmt.Fprintf(&b, "=%s", grant(notice.Hint.Grant))
		}
	}
	for _, attempt := range tab.seized {
		fmt.Fprintf(&b, "; seize %s", attempt)
	}
	for _, e := range left.Events {
		fmt.Fprintf(&b, "; event %s", e.Kind)
	}
	if left.WakesWatchers {
		b.WriteString("; wake")
	}
	return b.String()
}

// grant shows the tokens from the first on, as the time that has gone by at least since began.
func grant(g protocol.Grant) string {
	s := fmt.Sprint(g.Token - began)
	if g.First != g.Token {
		s = fmt.Sprintf("%d..%s", g.First-began, s)
	}
	if g.Lease != 0 {
		s += fmt.Sprintf("(%d)", g.Lease/tick)
	}
	if g.Contended {
		s += "+"
	}
	return s
}

// shows is the name in a line: its holders with their tokens, and its queue.
func (tab *table) shows() string {
	row, _ := tab.Row("n")
	var holders, places []string
	if row.Session != "" {
		h := row.Attempt + "=" + grant(protocol.Grant{First: row.First, Token: row.Last})
		if row.Ends != 0 {
			h += fmt.Sprintf("(%d)", row.Ends-tab.now)
		}
		holders = append(holders, h+row.Asked)
	}
	for _, s := range tab.Shares("n") {
		h := fmt.Sprintf("%s:%d/%d=%d", s.Attempt, s.Units, s.Of, s.Token-began)
		if s.Of == protocol.Readers {
			h = fmt.Sprintf("%s:r=%d", s.Attempt, s.Token-began)
		}
		if s.Ends != 0 {
			h += fmt.Sprintf("(%d)", s.Ends-tab.now)
		}
		holders = append(holders, h+s.Asked)
	}
	waiters := 0
	for _, p := range tab.Places("n") {
		place := p.Attempt
		if waiters += max(p.Members, 1); p.Members > 1 {
			place += fmt.Sprintf("*%d", p.Members)
		}
		places = append(places, place)
	}
	if len(holders) == 0 {
		holders = []string{"free"}
	}
	s := strings.Join(append(holders, "<"), " ")
	s = strings.TrimSuffix(strings.Join(append([]string{s}, places...), " "), " <")
	if row.Rests > tab.now {
		s += fmt.Sprintf(" rests %d", row.Rests-tab.now)
	}
	if waiters != row.Waiters {
		s += fmt.Sprintf(" and counts %d waiters", row.Waiters)
	}
	return s
}

// removal runs a removal.
func removal(r protocol.Removal) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		left, err := r.Apply(n)
		return fmt.Sprint(left.Done()), err
	}
}

// held is the lock of an attempt of its session, by its token since began.
func held(session string, token int64) protocol.Held {
	return protocol.Held{Name: "n", Session: session, Token: began + token}
}

func shared(session string, token int64) protocol.Held {
	h := held(session, token)
	h.Shared = true
	return h
}

// row is one of a table: after some requests have joined, a transition leaves what is wanted.
type row struct {
	says  string
	given []protocol.Request
	when  func(tab *table) // what else has happened
	do    func(n *protocol.Name) (string, error)
	want  string
}

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			tab := newTable(t)
			tab.join(r.given...)
			if r.when != nil {
				r.when(tab)
			}
			before, places := tab.shows(), tab.Places("n")
			got := tab.does(r.do)
			if got != r.want {
				t.Errorf("after %s\n got %s\nwant %s", before, got, r.want)
			}
			if strings.HasPrefix(got, "error") && (tab.shows() != before || !slices.Equal(places, tab.Places("n"))) {
				t.Errorf("an error has left %s", tab.shows())
			}
		})
	}
}

func requests(r ...protocol.Request) []protocol.Request { return r }

func over(sessions string) func(tab *table) { return func(tab *table) { tab.over = sessions } }

func later(by int64) func(tab *table) { return func(tab *table) { tab.now += by } }
