package oracle

import (
	crand "crypto/rand"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// answer is what came of a request.
type answer struct {
	yes      bool // taken, left, ended, …
	outcome  driver.Outcome
	grant    driver.Grant
	number   int64 // of holders, or a token
	left     time.Duration
	handoffs []driver.Handoff
	told     []protocol.Told
	err      error
}

// transition is a request through the protocol, with tokens of the engine, or of the memory.
type transition func(n *protocol.Name, mine bool) answer

// general makes a request through the general way, of both.
func (c *comparison) general(how driver.How, do transition) {
	c.Helper()
	how.Wait = true
	var got answer
	next, err := c.Change(c.ctx, how, func(n *protocol.Name) error {
		got = do(n, false)
		return got.err
	})
	got.handoffs, got.err = next, err
	c.both(how, got, do)
}

// both makes a request that the engine has answered through the protocol too, and compares.
func (c *comparison) both(how driver.How, got answer, do transition) {
	c.Helper()
	var want answer
	changes, err := c.memory.Change(how.Name, how.Make, func(n *protocol.Name) error {
		want = do(n, true)
		return want.err
	})
	want.err = err
	want.handoffs, want.told = changes.Handoffs, changes.Told
	c.answers(how.Name, got, want)
	c.rows(how.Name)
	c.hints(want.told)
}

// session is one of the sessions.
func (c *comparison) session() string { return c.sessions[c.IntN(len(c.sessions))] }

// chance is true once in so many times.
func (c *comparison) chance(n int) bool { return c.IntN(n) == 0 }

// duration is 0, soon, or later.
func (c *comparison) duration() time.Duration {
	return []time.Duration{0, 0, soon, later}[c.IntN(4)]
}

// asks is a request for a name.
func (c *comparison) asks(name string) driver.Request {
	r := driver.Request{
		Name: name, Session: c.session(), Host: fmt.Sprintf("host%d", c.IntN(2)), Thread: fmt.Sprintf("thread%d", c.IntN(2)),
		Attempt: crand.Text(), Wait: true,
	}
	kind := c.kind(name)
	switch {
	case kind == 0 && c.chance(2):
		r.Members = 1 + c.IntN(4)
		return r
	case kind == 1:
		r.Units, r.Of = 1, driver.Readers
	case kind == 2:
		r.Of = 3 + c.IntN(2)
		r.Units = 1 + c.IntN(r.Of)
	}
	r.Lease = c.duration()
	if c.chance(2) {
		r.Metadata = `{"k":"v"}`
	}
	if r.Units == 0 && c.chance(2) {
		r.MinHold = c.duration()
	}
	return r
}

// kind is what a request wants of a name: the whole (0), a reader's share (1), permits (2). Names
// differ in what is mostly wanted of them.
func (c *comparison) kind(name string) int {
	if c.chance(8) {
		return c.IntN(3)
	}
	switch name {
	case c.names[0]:
		return 0
	case c.names[1]:
		return c.IntN(2)
	}
	return 2 * c.IntN(2)
}

func (c *comparison) take(name string) {
	c.Helper()
	c.takes(c.asks(name), c.chance(3))
}

func (c *comparison) takes(r driver.Request, generally bool) {
	c.Helper()
	how := driver.How{Name: r.Name, Self: r.Session, Make: true}
	do := func(n *protocol.Name, _ bool) (a answer) {
		a.grant, a.yes = protocol.Take(n, r)
		return a
	}
	if c.doing = fmt.Sprintf("Take %+v", r); generally {
		c.doing += " by Change"
		c.general(how, do)
		return
	}
	var got answer
	got.grant, got.yes, got.err = c.Take(c.ctx, r)
	c.both(how, got, do)
}

func (c *comparison) join(name string) {
	c.Helper()
	c.joins(c.asks(name))
}

func (c *comparison) joins(r driver.Request) {
	c.Helper()
	name := r.Name
	how := driver.How{Name: name, Self: r.Session, Make: true}
	do := func(n *protocol.Name, _ bool) (a answer) {
		a.grant, a.outcome, a.err = protocol.Join(n, r)
		return a
	}
	if c.doing = fmt.Sprintf("Join %+v", r); c.chance(3) {
		c.doing += " by Change"
		c.general(how, do)
		return
	}
	var got answer
	got.grant, got.outcome, got.err = c.Join(c.ctx, r)
	c.both(how, got, do)
}

// held is something that a name has, or might have: mostly one that is there.
type held struct {
	session, attempt    string
	host, thread        string
	first, token        int64 // of the memory
	shared, over, queue bool
}

// some picks something that a name has.
func (c *comparison) some(name string) held {
	var all []held
	if row, _ := c.memory.Row(name); row.Session != "" {
		all = append(all, held{
			session: row.Session, attempt: row.Attempt, host: row.Host, thread: row.Thread, first: row.First, token: row.Last,
			over: row.Ends != 0 && row.Ends <= c.now,
		})
		all = append(all, all...)
	}
	for _, s := range c.memory.Shares(name) {
		all = append(all, held{
			session: s.Session, attempt: s.Attempt, host: s.Host, thread: s.Thread, first: s.Token, token: s.Token, shared: true,
			over: s.Ends != 0 && s.Ends <= c.now,
		})
	}
	for _, p := range c.memory.Places(name) {
		if c.chance(2) {
			all = append(all, held{session: p.Session, attempt: p.Attempt, queue: true})
		}
	}
	switch {
	case len(all) == 0:
		return held{session: c.session(), attempt: crand.Text()}
	case c.chance(10):
		h := all[c.IntN(len(all))]
		h.session = c.session()
		return h
	}
	return all[c.IntN(len(all))]
}

// token is a token of the memory, or that of the engine for it.
func (c *comparison) token(name string, mem int64, mine bool) int64 {
	if mine {
		return mem
	}
	return c.tokens[name].of(mem)
}

// pass has a free name passed on in a queue of whole names and cohorts: for that engines have short
// ways, and random requests seldom come to it.
func (c *comparison) pass(name string) {
	c.Helper()
	for range 3 {
		c.joins(driver.Request{Name: name, Session: c.session(), Attempt: crand.Text(), Members: 1 + c.IntN(3), Wait: true})
	}
	for range 3 {
		row, _ := c.memory.Row(name)
		c.removes(name, held{session: row.Session, attempt: row.Attempt, token: row.Last}, protocol.ByHolder, true, false)
	}
}

// edges has short ways meet rows that random requests seldom have for them: a name that has rested
// and that somebody waits for, and a release with a token or a session that is not the holder's.
func (c *comparison) edges(name string) {
	c.Helper()
	whole := func(session string) driver.Request {
		return driver.Request{Name: name, Session: session, Attempt: crand.Text(), Wait: true}
	}
	holder, other := c.sessions[0], c.sessions[1]
	r := whole(holder)
	r.MinHold = later
	c.tick(name)
	c.joins(r)
	c.joins(whole(other))
	row, _ := c.memory.Row(name)
	c.removes(name, held{session: holder, token: row.Last}, protocol.ByHolder, false, false)
	c.endRest(name, held{session: holder}, true)
	c.takes(whole(holder), false)
	c.removes(name, held{}, protocol.Nothing, false, false)
	row, _ = c.memory.Row(name)
	for _, wrong := range []held{{session: other, token: row.Last - 1}, {session: holder, token: row.Last}, {session: other, token: row.Last}} {
		c.removes(name, wrong, protocol.ByHolder, false, false)
	}
}

func (c *comparison) remove(name string) {
	c.Helper()
	c.removes(name, c.some(name), protocol.Cause(c.IntN(5)), c.chance(2), c.chance(4))
}

// removes takes off what a name has, or might have.
func (c *comparison) removes(name string, h held, cause protocol.Cause, contended, guarded bool) {
	c.Helper()
	self := c.session()
	event := driver.Event{Name: name, Kind: "broken", Session: self}
	removal := func(mine bool) driver.Removal {
		token := c.token(name, h.token, mine)
		holder := driver.Holder{Session: h.session, Attempt: h.attempt, Grant: driver.Grant{Token: token}}
		if h.over {
			holder.Grant.Lease = -1
		}
		switch cause {
		case protocol.ByHolder:
			return protocol.Release(driver.Held{Name: name, Session: h.session, Token: token, Shared: h.shared}, contended, guarded)
		case protocol.ByAttempt:
			return protocol.Undo(h.session, name, h.attempt)
		case protocol.ByTime:
			return protocol.TakeOver(self, name, holder)
		case protocol.ByForce:
			return protocol.Break(self, name, holder, event)
		}
		return protocol.TakeOver(self, name, driver.Holder{})
	}
	do := func(n *protocol.Name, mine bool) (a answer) {
		a.yes, a.err = protocol.Remove(n, removal(mine))
		return a
	}
	r := removal(false)
	how := driver.How{Name: name, Self: r.Self}
	if c.doing = fmt.Sprintf("Remove %+v", r); c.chance(3) {
		c.doing += " by Change"
		c.general(how, do)
		return
	}
	var got answer
	got.handoffs, got.yes, got.err = c.Remove(c.ctx, r)
	c.both(how, got, do)
}

// convert makes one of the requests that no engine has a short way for.
func (c *comparison) convert(name string) {
	c.Helper()
	h := c.some(name)
	lock := func(mine bool) driver.Held {
		return driver.Held{Name: name, Session: h.session, Token: c.token(name, h.token, mine), Shared: h.shared}
	}
	how, r := driver.How{Name: name, Self: h.session}, c.asks(name)
	event, d := driver.Event{Name: name, Kind: "asked", Session: h.session}, c.duration()
	by, member := c.IntN(7200)-3600, h.first+c.Int64N(h.token-h.first+1)
	switch kind := c.IntN(10); kind {
	case 0:
		c.doing = fmt.Sprintf("Extend %+v by %v", h, d)
		c.general(how, func(n *protocol.Name, mine bool) (a answer) {
			a.left, a.err = protocol.Extend(n, lock(mine), d)
			return a
		})
	case 1:
		c.doing = fmt.Sprintf("Downgrade %+v", h)
		c.general(how, func(n *protocol.Name, mine bool) (a answer) {
			a.err = protocol.Downgrade(n, lock(mine))
			return a
		})
	case 2:
		c.doing = fmt.Sprintf("Upgrade %+v", h)
		c.general(how, func(n *protocol.Name, mine bool) (a answer) {
			a.grant, a.yes, a.err = protocol.Upgrade(n, lock(mine), h.attempt)
			return a
		})
	case 3:
		c.doing = fmt.Sprintf("Raise %+v by %d s", h, by)
		c.general(how, func(n *protocol.Name, mine bool) (a answer) {
			held := lock(mine)
			a.number, a.err = protocol.Raise(n, held, held.Token+int64(by)*1e6)
			return a
		})
	case 4:
		rest := driver.Request{Session: h.session, Host: "behind", Thread: "t", Attempt: r.Attempt, Wait: true}
		rest.Members = c.IntN(int(h.token-member) + 1) // those behind it that still wait
		c.doing = fmt.Sprintf("Detach %+v at %d", h, member)
		c.general(how, func(n *protocol.Name, mine bool) (a answer) {
			a.err = protocol.Detach(n, lock(mine), driver.Detachment{
				Token: lock(mine).Token - (h.token - member), Host: "member", Thread: "t", Behind: rest,
			})
			return a
		})
	case 5:
		c.doing = "Ask"
		c.general(how, func(n *protocol.Name, _ bool) (a answer) {
			holders, err := protocol.Ask(n, "please", event)
			return answer{number: int64(holders), err: err}
		})
	case 6:
		c.endRest(name, h, c.chance(2))
	case 7:
		if h.host != "" {
			r.Host, r.Thread = h.host, h.thread
		}
		r.Units, r.Of, r.Members = 0, 0, 1
		how.Self = r.Session
		c.doing = fmt.Sprintf("Reenter %+v", r)
		c.general(how, func(n *protocol.Name, _ bool) (a answer) {
			a.grant, a.yes, a.err = protocol.Reenter(n, r)
			return a
		})
	case 8:
		c.doing = fmt.Sprintf("Announce %+v", h)
		c.general(how, func(n *protocol.Name, mine bool) answer {
			return answer{err: protocol.Announce(n, lock(mine), event)}
		})
	case 9:
		to := driver.Request{Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt}
		c.doing = fmt.Sprintf("Move %+v to %+v", h, to)
		for range 1 + c.IntN(2) { // also once more, as after an answer that was lost
			c.general(how, func(n *protocol.Name, mine bool) answer {
				return answer{err: protocol.Move(n, lock(mine), to)}
			})
		}
	}
}

// endRest ends the rest of a name, with the token of a holder or with none.
func (c *comparison) endRest(name string, h held, all bool) {
	c.Helper()
	event := driver.Event{Name: name, Kind: "rested", Session: h.session}
	c.doing = fmt.Sprintf("EndRest %+v, of all: %v", h, all)
	c.general(driver.How{Name: name, Self: h.session}, func(n *protocol.Name, mine bool) answer {
		if all {
			return answer{yes: protocol.EndRest(n, 0, event)}
		}
		return answer{yes: protocol.EndRest(n, c.token(name, h.token, mine), event)}
	})
}

// batch takes and releases several names at once.
func (c *comparison) batch() {
	c.Helper()
	var takes []driver.Request
	var of, releases []driver.Held // of: as the memory knows them
	for _, name := range c.names {
		if h := c.some(name); !h.queue && h.token != 0 && c.chance(2) {
			of = append(of, driver.Held{Name: name, Session: h.session, Token: h.token, Shared: h.shared})
			releases = append(releases, driver.Held{Name: name, Session: h.session, Token: c.token(name, h.token, false), Shared: h.shared})
		} else if c.chance(2) {
			r := c.asks(name)
			r.Units, r.Of, r.Members, r.MinHold = 0, 0, 1, 0
			takes = append(takes, r)
		}
	}
	c.doing = fmt.Sprintf("Batch %+v %+v", takes, releases)
	grants, released, err := c.Batch(c.ctx, takes, releases)
	if err != nil || len(grants) != len(takes) || len(released) != len(releases) {
		c.failf("%d grants, %d released, %v", len(grants), len(released), err)
	}
	for i, r := range takes {
		if _, known := c.memory.Row(r.Name); !known && grants[i].Token == 0 {
			continue // it may leave out a name that is new
		}
		got := answer{grant: grants[i], yes: grants[i].Token != 0}
		c.both(driver.How{Name: r.Name, Make: true}, got, func(n *protocol.Name, _ bool) (a answer) {
			a.grant, a.yes = protocol.Take(n, r)
			return a
		})
	}
	for i, h := range of {
		c.both(driver.How{Name: h.Name}, answer{yes: released[i]}, func(n *protocol.Name, _ bool) (a answer) {
			if n.Waiters == 0 {
				a.yes, a.err = protocol.Remove(n, protocol.Release(h, false, false))
			}
			return a
		})
	}
}
