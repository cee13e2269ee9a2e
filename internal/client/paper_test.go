package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
)

// paper is a database with whole names only, which can be away.
type paper struct {
	driver.Backend // what is never called
	deaf           bool

	mu     sync.Mutex // protects what follows
	away   chan struct{}
	tokens int64
	names  map[string]*page
}

// page is a name.
type page struct {
	driver.Holder
	queue []driver.Request
}

func newPaper() *paper { return &paper{away: make(chan struct{}), names: map[string]*page{}} }

// newPaperClient makes a client on a database in the present time, which ends with the test.
func newPaperClient(t testing.TB, p driver.Backend, change func(c *Config)) *Client {
	began := time.Now()
	config := Config{
		TTL: 15 * time.Second, Host: "host", App: "app", Log: slog.New(slog.DiscardHandler), Deadlock: time.Second,
		Clock:       clock.Func(func() time.Duration { return time.Since(began) }),
		NotAcquired: func(driver.State, error) error { return ErrNotAcquired },
		Deadlocked:  func(deadlock.Cycle) error { return ErrDeadlock },
	}
	if change != nil {
		change(&config)
	}
	c := New(p, config)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// leave breaks every connection, until comeBack.
func (p *paper) leave() { close(p.away) }

func (p *paper) comeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = make(chan struct{})
}

var errAway = driver.Fail(driver.ErrUnavailable, errors.New("away"))

// write does something to a name, with the page of it.
func (p *paper) write(name string, do func(n *page)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.away:
		return errAway
	default:
	}
	if p.names[name] == nil {
		p.names[name] = &page{}
	}
	do(p.names[name])
	return nil
}

func (p *paper) reach() error { return p.write("", func(*page) {}) }

func (n *page) grant(p *paper, r driver.Request) driver.Grant {
	p.tokens++
	g := driver.Grant{Token: p.tokens, Lease: r.Lease, Contended: len(n.queue) > 0}
	n.Holder = driver.Holder{Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Grant: g, Left: time.Hour}
	return g
}

// next grants a free name to its first waiter.
func (n *page) next(p *paper) (next []driver.Handoff) {
	n.Holder = driver.Holder{}
	if len(n.queue) > 0 {
		first := n.queue[0]
		n.queue = n.queue[1:]
		next = append(next, driver.Handoff{Session: first.Session, Attempt: first.Attempt, Grant: n.grant(p, first)})
	}
	return next
}

func (p *paper) Connections() (inUse, most int)              { return 0, 0 }
func (p *paper) Attend(string, time.Duration) (leave func()) { return func() {} }
func (p *paper) Close() error                                { return nil }
func (p *paper) EndSession(context.Context, string) error    { return p.reach() }

func (p *paper) Schema(context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion}, p.reach()
}

func (p *paper) OpenSession(context.Context, driver.Session) error { return p.reach() }

func (p *paper) Orphans(context.Context, string, int) ([]driver.Claim, error) { return nil, p.reach() }

func (p *paper) Upkeep(context.Context) (driver.Upkeep, error) { return p, p.reach() }

func (p *paper) Heartbeat(context.Context, string, time.Duration) (alive bool, err error) {
	return true, p.reach()
}

func (p *paper) Beat(_ context.Context, session string, _ time.Duration) (alive bool, err error) {
	return session != noSession, p.reach()
}

func (p *paper) Claims(_ context.Context, session string) (claims []driver.Claim, err error) {
	if err := p.reach(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, n := range p.names {
		if n.Session == session {
			claims = append(claims, driver.Claim{Name: name, Attempt: n.Attempt, Token: n.Grant.Token})
		}
		for _, r := range n.queue {
			if r.Session == session {
				claims = append(claims, driver.Claim{Name: name, Attempt: r.Attempt})
			}
		}
	}
	return claims, nil
}

func (p *paper) Take(_ context.Context, r driver.Request) (g driver.Grant, taken bool, err error) {
	err = p.write(r.Name, func(n *page) {
		if taken = n.Session == "" && len(n.queue) == 0; taken {
			g = n.grant(p, r)
		}
	})
	return g, taken, err
}

func (p *paper) TakeAll(ctx context.Context, rs []driver.Request) (grants []driver.Grant, err error) {
	for _, r := range rs {
		g, taken, err := p.Take(ctx, r)
		if err != nil || !taken {
			return grants, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

func (p *paper) Reenter(context.Context, driver.Request) (driver.Grant, bool, error) {
	return driver.Grant{}, false, p.reach()
}

func (p *paper) SetHolds(context.Context, driver.Held, int) error { return p.reach() }

func (p *paper) Enqueue(_ context.Context, rs ...driver.Request) (_ driver.Grant, outcome driver.Outcome, err error) {
	err = p.write(rs[0].Name, func(n *page) {
		if n.Session != "" {
			n.queue, outcome = append(n.queue, rs...), driver.Queued
		}
	})
	return driver.Grant{}, outcome, err
}

func (p *paper) Vacate(_ context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	err = p.write(v.Name, func(n *page) {
		queued := len(n.queue)
		n.queue = slices.DeleteFunc(n.queue, func(r driver.Request) bool { return v.Cause == driver.ByAttempt && r.Attempt == v.Attempt })
		left = len(n.queue) < queued
		if n.Session == v.Session && (v.Cause == driver.ByHolder && n.Grant.Token == v.Token || v.Cause == driver.ByAttempt && n.Attempt == v.Attempt) {
			next, left = n.next(p), true
		}
	})
	return next, left, err
}

func (p *paper) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	for _, r := range takes {
		g, _, err := p.Take(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		grants = append(grants, g)
	}
	for _, h := range releases {
		done := false
		err := p.write(h.Name, func(n *page) {
			if done = n.Session == h.Session && n.Grant.Token == h.Token && len(n.queue) == 0; done {
				n.next(p)
			}
		})
		if err != nil {
			return nil, nil, err
		}
		released = append(released, done)
	}
	return grants, released, nil
}

func (p *paper) Look(_ context.Context, session string, names []string) (states []driver.State, err error) {
	for _, name := range names {
		err := p.write(name, func(n *page) {
			s := driver.State{Name: name, Holder: n.Holder, Waiters: len(n.queue)}
			for _, r := range n.queue {
				if r.Session == session {
					s.Queued = append(s.Queued, r.Attempt)
				}
			}
			if n.Session == session {
				s.Granted = []driver.Own{{Attempt: n.Attempt, Grant: n.Grant}}
			}
			states = append(states, s)
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (p *paper) Listen(ctx context.Context, _ string, ready func(), _ func(driver.Hint)) error {
	if p.deaf {
		return driver.ErrCannotListen
	}
	if err := p.reach(); err != nil {
		return err
	}
	ready()
	p.mu.Lock()
	away := p.away
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-away:
		return errAway
	}
}

func (p *paper) WaitGraph(context.Context, []string) ([]driver.Wait, error) { return nil, p.reach() }
func (p *paper) Record(context.Context, []driver.Event) error               { return p.reach() }

func (p *paper) Expired(context.Context, int) ([]string, error)       { return nil, p.reach() }
func (p *paper) Overdue(context.Context, int) ([]driver.State, error) { return nil, p.reach() }

func (p *paper) Purge(context.Context, time.Duration, string, int) (int, string, error) {
	return 0, "", p.reach()
}

func (p *paper) Forget(context.Context, time.Duration, int) (int, error) { return 0, p.reach() }
func (p *paper) DropGuards(context.Context, int) (int, error)            { return 0, p.reach() }

func (p *paper) PurgeRecords(context.Context, time.Duration, int) (int, error) { return 0, p.reach() }
