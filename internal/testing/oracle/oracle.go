// Package oracle compares an engine with package protocol. It makes random requests to both, and
// compares what they answer and the rows that they leave: the rows of the protocol are in memory
// (package memory). A short way of an engine is right if nobody can tell it from the general way.
//
// Tokens are compared by their order, and times coarsely: the memory's clock is that of the engine,
// as it was just before each request.
package oracle

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// Engine is what is compared. Where it has a method Upkeep (driver.Sessions), hints are compared
// too.
type Engine interface {
	driver.Names
	OpenSession(ctx context.Context, s driver.Session) error
	EndSession(ctx context.Context, session string, empty bool) error
}

// T is what Compare needs of *testing.T.
type T interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

const (
	soon   = time.Millisecond // a lease, a rest or a TTL that is over at the next step
	later  = time.Hour        // one that lasts
	step   = 3 * soon         // by which the engine's clock moves between two steps
	coarse = 10 * time.Minute // times that differ by less are equal
)

// comparison is an engine and the memory, with what is known of both.
type comparison struct {
	T
	Engine
	*rand.Rand
	ctx      context.Context
	memory   memory.Names
	now      int64 // of the engine, before the step
	done     int   // steps
	doing    string
	names    []string
	sessions []string
	alive    map[string]bool
	tokens   map[string]*tokens
	before   map[string]protocol.Row // of the engine, after the last step with the name
	ears     map[string]*ear
}

// Compare makes so many random requests of an engine, and fails the test where it does not do what
// the protocol does. The engine's database may have other names and sessions.
func Compare(t T, e Engine, seed uint64, steps int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &comparison{
		T: t, Engine: e, Rand: rand.New(rand.NewPCG(seed, 0)), ctx: ctx,
		alive: map[string]bool{}, tokens: map[string]*tokens{}, before: map[string]protocol.Row{},
		ears: map[string]*ear{},
	}
	defer c.close(cancel)
	c.memory = memory.Names{
		Now:    func() int64 { return c.now },
		Alive:  func(session string) bool { return c.alive[session] },
		Expire: func(session string) bool { return !c.alive[session] },
	}
	run := crand.Text()[:8]
	for i := range 3 {
		name := fmt.Sprintf("oracle/%s/%d", run, i)
		c.names, c.tokens[name] = append(c.names, name), &tokens{}
	}
	for range 4 {
		c.open(later)
	}
	for _, name := range c.names {
		c.edges(name)
	}
	for c.done = range steps {
		name := c.names[c.IntN(len(c.names))]
		c.tick(name)
		c.request(name)
	}
}

// failf fails the test, with the step.
func (c *comparison) failf(format string, args ...any) {
	c.Helper()
	c.Fatalf("step %d, %s: "+format, append([]any{c.done, c.doing}, args...)...)
}

// open opens a session. One whose TTL is soon over is dead from the next step on.
func (c *comparison) open(ttl time.Duration) {
	c.doing = "OpenSession"
	id := crand.Text()
	if err := c.OpenSession(c.ctx, driver.Session{ID: id, Host: "h", PID: 1, App: "oracle", TTL: ttl}); err != nil {
		c.failf("%v", err)
	}
	c.sessions, c.alive[id] = append(c.sessions, id), ttl == later
	if ttl == later {
		c.listen(id)
	}
}

// tick waits until the engine's clock has moved by a step since the last request was answered, and
// reads it. That request may have taken long.
func (c *comparison) tick(name string) {
	c.doing = "reading the clock"
	for after := c.read(name).now; c.now < after+step.Microseconds(); {
		c.now = c.read(name).now
	}
}

// season is how many steps are busy, with queues that grow, and as many are quiet: with names that
// become free.
const season = 25

// request makes one random request of both.
func (c *comparison) request(name string) {
	quiet := c.done/season%2 == 1
	switch n := c.IntN(24); {
	case n < 3, n < 9 && quiet && !c.held(name):
		c.take(name)
	case n < 9 && !quiet:
		c.join(name)
	case n == 14 && !c.held(name):
		c.pass(name)
	case n < 15:
		c.remove(name)
	case n == 15:
		c.batch()
	case n == 16:
		c.live()
	case n < 19:
		c.sequence(name)
	case n < 22 && quiet:
		if row, _ := c.memory.Row(name); row.Rests > c.now && c.chance(2) {
			c.doing = "EndRest"
			c.run(func(bool) protocol.Op { return protocol.EndRest{Name: name} })
			return
		}
		c.remove(name)
	default:
		c.convert(name)
	}
}

// held reports whether somebody has something of a name, or waits for it.
func (c *comparison) held(name string) bool {
	row, _ := c.memory.Row(name)
	return row.Session != "" || row.Units > 0 || row.Waiters > 0
}

// live ends a session or opens one.
func (c *comparison) live() {
	living := len(c.alive)
	for _, alive := range c.alive {
		if !alive {
			living--
		}
	}
	switch {
	case living <= 3:
		c.open(later)
	case c.IntN(2) == 0:
		c.open(soon)
	case c.IntN(4) == 0:
		c.sessions = append(c.sessions, crand.Text()) // one without a row
	default:
		session := c.session()
		c.doing = "EndSession"
		if err := c.EndSession(c.ctx, session, false); err != nil {
			c.failf("%v", err)
		}
		c.alive[session] = false
	}
	if len(c.sessions) > 8 {
		c.sessions = c.sessions[len(c.sessions)-8:]
	}
}

// contents are the rows of a name.
type contents struct {
	now    int64
	row    protocol.Row
	places []protocol.Place
	shares []protocol.Share
}

var errRead = errors.New("nothing is to be written")

// read reads the rows of a name from the engine.
func (c *comparison) read(name string) (is contents) {
	c.Helper()
	_, err := c.Run(c.ctx, drivertest.Func{Name: name, Do: func(n *protocol.Name) (err error) {
		is = contents{now: n.Now, row: n.Row}
		if is.places, is.shares, err = n.Contents(); err != nil {
			return err
		}
		return errRead
	}})
	if !errors.Is(err, errRead) {
		c.failf("read: %v", err)
	}
	return is
}
