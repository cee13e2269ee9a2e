package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// paper is a database in memory, which can be away.
type paper struct {
	driver.Backend // what is never called
	deaf           bool
	why            error // that it is away

	mu    sync.Mutex // protects what follows
	away  chan struct{}
	names memory.Names

	statements, opened, ended int
	attending                 int             // clients
	dead                      map[string]bool // sessions that have ended
}

func newPaper() *paper {
	p := &paper{why: errAway, away: make(chan struct{}), dead: map[string]bool{}, names: memory.Names{
		Alive: func(string) bool { return true }, Expire: func(string) bool { return false },
	}}
	p.names.Now = func() (token int64) { // of the next grant, whatever its name
		for _, name := range p.names.All() {
			row, _ := p.names.Row(name)
			token = max(token, row.Token)
		}
		return token + 1
	}
	return p
}

// newPaperClient makes a client on a database in the present time, which ends with the test.
func newPaperClient(t testing.TB, p driver.Backend, change func(c *Config)) *Client {
	began := time.Now()
	config := Config{
		TTL: 15 * time.Second, Host: "host", App: "app", Log: testlog.New(io.Discard, t.Error), Deadlock: time.Second,
		Clock:       clock.Func(func() time.Duration { return time.Since(began) }),
		NotAcquired: func(driver.State, error) error { return ErrNotAcquired },
		Deadlocked:  func(deadlock.Cycle) error { return ErrDeadlock },
	}
	if change != nil {
		change(&config)
	}
	c := New(p, config)
	t.Cleanup(func() {
		assert.NoError(t, c.Close(context.Background()))
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

// reached is why the database cannot be reached, or nil. MUST be called with mu locked.
func (p *paper) reached() error {
	p.statements++
	select {
	case <-p.away:
		return p.why
	default:
		return nil
	}
}

func (p *paper) reach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached()
}

// asked is how many statements it was sent.
func (p *paper) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statements
}

func (p *paper) Run(_ context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.reached(); err != nil {
		return nil, err
	}
	results := make([]protocol.Result, len(ops))
	for i, op := range protocol.Together(ops) {
		var err error
		if results[i], _, err = p.names.Run(op); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (p *paper) Validate() error                { return nil }
func (p *paper) Connections() (inUse, most int) { return 0, 0 }
func (p *paper) Close() error                   { return nil }

func (p *paper) Attend(string, time.Duration) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attending++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attending--
	}
}

// attended is for how many clients the engine keeps connections.
func (p *paper) attended() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attending
}

func (p *paper) Schema(context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion}, p.reach()
}

func (p *paper) OpenSession(context.Context, driver.Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	return p.reached()
}

func (p *paper) EndSession(_ context.Context, session string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	p.dead[session] = true
	return p.reached()
}

func (p *paper) Upkeep(context.Context, string) (driver.Upkeep, error) { return p, p.reach() }

func (p *paper) Heartbeat(context.Context, string, time.Duration) (alive bool, err error) {
	return true, p.reach()
}

func (p *paper) Beat(context.Context, string, time.Duration) (alive bool, err error) {
	return true, p.reach()
}

// Claims lists nothing of a session that has ended.
func (p *paper) Claims(_ context.Context, session string, _ int) (claims []driver.Claim, err error) {
	if err := p.reach(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead[session] {
		return nil, nil
	}
	for _, name := range p.names.All() {
		if row, _ := p.names.Row(name); row.Session == session {
			claims = append(claims, driver.Claim{Name: name, Attempt: row.Attempt, Token: row.Last})
		}
		for _, place := range p.names.Places(name) {
			if place.Session == session {
				claims = append(claims, driver.Claim{Name: name, Attempt: place.Attempt})
			}
		}
	}
	return claims, nil
}

func (p *paper) Read(_ context.Context, session string, names []string, _ int) (states []driver.State, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		row, _ := p.names.Row(name)
		s := driver.State{Name: name, Waiters: row.Waiters}
		if row.Session != "" {
			s.Holder = driver.Holder{
				Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
				Grant: driver.Grant{First: row.First, Token: row.Last}, Left: time.Hour,
			}
		}
		for _, place := range p.names.Places(name) {
			if place.Session == session {
				s.Queued = append(s.Queued, place.Attempt)
			}
		}
		if row.Session == session {
			s.Granted = []driver.OwnGrant{{Attempt: row.Attempt, Grant: s.Holder.Grant}}
		}
		states = append(states, s)
	}
	return states, p.reached()
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

func (p *paper) Watch(context.Context, string, string, string) error { return p.reach() }
func (p *paper) Unwatch(context.Context, string, string) error       { return p.reach() }

func (p *paper) WaitGraph(context.Context, []string) ([]driver.Wait, error) { return nil, p.reach() }
func (p *paper) Record(context.Context, []driver.Event) error               { return p.reach() }

func (p *paper) Expired(context.Context, int) ([]string, error) { return nil, p.reach() }
func (p *paper) Miscounted(context.Context, string, string, int) ([]string, error) {
	return nil, p.reach()
}

func (p *paper) Overdue(context.Context, int) ([]driver.State, error) { return nil, p.reach() }

func (p *paper) Purge(context.Context, time.Duration, string, int) (int, string, error) {
	return 0, "", p.reach()
}

func (p *paper) Forget(context.Context, time.Duration, int) (int, error) { return 0, p.reach() }
func (p *paper) DropGuards(context.Context, int) (int, error)            { return 0, p.reach() }

func (p *paper) PurgeRecords(context.Context, time.Duration, int) (int, error) { return 0, p.reach() }
