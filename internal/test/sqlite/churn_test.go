package sqlite_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/drivertest"
)

// churn does whatever comes, one thing after the other, and remembers what is held and what waits.
type churn struct {
	*fixture
	sessions []string
	held     map[string]driver.Held    // by attempt
	waiting  map[string]driver.Request // by attempt
	tokens   map[string]int64          // the highest, by name
}

// TestWhateverHappensNobodyWaitsWhoFits: after each transition the rows are sound, tokens have
// risen, and the first in the queue of a name is one who does not fit.
func TestWhateverHappensNobodyWaitsWhoFits(t *testing.T) {
	c := churn{
		fixture: newFixture(t), held: map[string]driver.Held{}, waiting: map[string]driver.Request{}, tokens: map[string]int64{},
	}
	for range 3 {
		c.sessions = append(c.sessions, c.session())
	}
	for range soaked(200, 5000) {
		c.step()
		c.sound()
		for _, name := range []string{"a", "b"} {
			if states, err := c.Look(t.Context(), "", []string{name}); err != nil || len(states) > 0 && states[0].Ready {
				t.Fatalf("%+v, %v: the first in the queue fits", states, err)
			}
		}
	}
	if n := c.number("SELECT (SELECT count(*) FROM dblock_shares) + (SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL)"); n != int64(len(c.held)) {
		t.Fatalf("%d grants are in the tables, %d are known", n, len(c.held))
	}
	if n := c.number("SELECT count(*) FROM dblock_waiters"); n != int64(len(c.waiting)) {
		t.Fatalf("%d places are in the tables, %d are known", n, len(c.waiting))
	}
}

func (c *churn) step() {
	c.t.Helper()
	switch rand.IntN(10) {
	case 0, 1, 2, 3, 4:
		c.acquire()
	case 5, 6, 7:
		if attempt, h, ok := anyOf(c.held); ok {
			next, err := drivertest.Release(c.t.Context(), c, h, rand.IntN(2) == 0)
			c.moved(next, err)
			delete(c.held, attempt)
		}
	case 8:
		if attempt, r, ok := anyOf(c.waiting); ok {
			next, err := drivertest.Undo(c.t.Context(), c, r.Session, r.Name, attempt)
			delete(c.waiting, attempt)
			c.moved(next, err)
		}
	case 9:
		c.convert()
	}
}

func (c *churn) acquire() {
	c.t.Helper()
	r := request([]string{"a", "b"}[rand.IntN(2)], c.sessions[rand.IntN(3)])
	switch rand.IntN(3) {
	case 0:
		r.Units, r.Of = 1, driver.Readers
		if r.Name == "b" {
			r.Units, r.Of = 1+rand.IntN(3), 4
		}
	case 1:
		r.Units, r.Of = 1, driver.Readers
	}
	r.Lease = time.Duration(rand.IntN(2)) * time.Hour
	grant, taken, err := c.Take(c.t.Context(), r)
	if err == nil && !taken {
		var outcome driver.Outcome
		grant, outcome, err = c.Enqueue(c.t.Context(), r)
		taken = outcome == driver.Granted
		if outcome == driver.Queued {
			c.waiting[r.Attempt] = r
		}
	}
	if errors.Is(err, driver.ErrCapacity) {
		return
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if taken {
		c.granted(r, grant.Token)
	}
}

// convert makes readers of writers, and the reverse.
func (c *churn) convert() {
	c.t.Helper()
	attempt, h, ok := anyOf(c.held)
	if !ok {
		return
	}
	if !h.Shared {
		next, err := c.Downgrade(c.t.Context(), h)
		if errors.Is(err, driver.ErrCapacity) {
			return
		}
		h.Shared = true
		c.held[attempt] = h
		c.moved(next, err)
		return
	}
	grant, up, err := c.Upgrade(c.t.Context(), h, attempt)
	if err != nil {
		c.t.Fatal(err)
	}
	if up {
		delete(c.held, attempt)
		c.granted(driver.Request{Name: h.Name, Session: h.Session, Attempt: attempt}, grant.Token)
	}
}

// moved takes note of a hand-over.
func (c *churn) moved(next []driver.Handoff, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range next {
		r, waited := c.waiting[n.Attempt]
		if !waited {
			c.t.Fatalf("%+v was handed to one who does not wait", n)
		}
		delete(c.waiting, n.Attempt)
		c.granted(r, n.Grant.Token)
	}
}

func (c *churn) granted(r driver.Request, token int64) {
	c.t.Helper()
	if token <= c.tokens[r.Name] {
		c.t.Fatalf("token %d of %q after %d", token, r.Name, c.tokens[r.Name])
	}
	c.tokens[r.Name] = token
	c.held[r.Attempt] = driver.Held{Name: r.Name, Session: r.Session, Token: token, Shared: r.Units > 0}
}

// anyOf is one of the entries, any.
func anyOf[V any](entries map[string]V) (string, V, bool) {
	for key, value := range entries {
		return key, value, true
	}
	var none V
	return "", none, false
}
