package oracle

import (
	crand "crypto/rand"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// run runs an op on the engine and on the memory, and compares. The op has tokens of the memory
// (mine), or of the engine.
func (c *comparison) run(op func(mine bool) protocol.Op) {
	c.Helper()
	got, err := driver.Do(c.ctx, c, op(false))
	c.compare(got, err, op(true))
}

// either runs an op as run does, sometimes the general way.
func (c *comparison) either(op func(mine bool) protocol.Op) {
	c.Helper()
	if c.doing = fmt.Sprintf("%T %+v", op(false), op(false)); c.chance(3) {
		c.doing += ", the general way"
		c.run(func(mine bool) protocol.Op { return drivertest.General{Op: op(mine)} })
		return
	}
	c.run(op)
}

// compare runs an op that the engine has run on the memory, too, and compares.
func (c *comparison) compare(got protocol.Result, err error, op protocol.Op) {
	c.Helper()
	want, changes, wantErr := c.memory.Apply(op)
	c.results(op.On(), got, err, want, wantErr)
	c.rows(op.On())
	c.hints(changes.Notices)
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
func (c *comparison) asks(name string) protocol.Request {
	r := protocol.Request{
		Name: name, Session: c.session(), Host: fmt.Sprintf("host%d", c.IntN(2)), Thread: fmt.Sprintf("thread%d",
			c.IntN(2)),
		Attempt: crand.Text(), Patient: true,
	}
	kind := c.kind(name)
	switch {
	case kind == 0 && c.chance(2):
		r.Members = 1 + c.IntN(4)
		return r
	case kind == 1:
		r.Units, r.Of = 1, protocol.Readers
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
	r := c.asks(name)
	c.either(func(bool) protocol.Op { return protocol.Take{Request: r} })
}

func (c *comparison) join(name string) {
	c.Helper()
	c.joins(c.asks(name))
}

func (c *comparison) joins(r protocol.Request) {
	c.Helper()
	if places := c.memory.Places(r.Name); len(places) > 0 && c.alive[places[len(places)-1].Session] && c.chance(4) {
		r.Session = places[len(places)-1].Session
	}
	j := c.extends(r)
	c.either(func(bool) protocol.Op { return j })
}

// extends is a request that joins, and that sometimes extends a place: mostly the last one.
func (c *comparison) extends(r protocol.Request) protocol.Join {
	j := protocol.Join{Request: r}
	places := c.memory.Places(r.Name)
	if len(places) == 0 || r.Units != 0 || r.Lease+r.MinHold != 0 || r.Metadata != "" || c.chance(3) {
		return j
	}
	p := places[len(places)-1]
	if c.chance(5) {
		p = places[c.IntN(len(places))]
	}
	if p.Units == 0 && p.Lease+p.MinHold == 0 && p.Metadata == "" {
		j.Extends = p.Attempt
	}
	return j
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
			session: row.Session, attempt: row.Attempt, host: row.Host, thread: row.Thread, first: row.First,
			token: row.Last,
			over:  row.Ends != 0 && row.Ends <= c.now,
		})
		all = append(all, all...)
	}
	for _, s := range c.memory.Shares(name) {
		all = append(all, held{
			session: s.Session, attempt: s.Attempt, host: s.Host, thread: s.Thread, first: s.Token, token: s.Token,
			shared: true,
			over:   s.Ends != 0 && s.Ends <= c.now,
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
		c.joins(protocol.Request{Name: name, Session: c.session(), Attempt: crand.Text(), Members: 1 + c.IntN(3),
			Patient: true})
	}
	for range 3 {
		row, _ := c.memory.Row(name)
		c.removes(name, held{session: row.Session, attempt: row.Attempt, token: row.Last}, protocol.ByHolder, true,
			false)
	}
}

// edges has short ways meet rows that random requests seldom have for them: a name that has rested
// and that somebody waits for, and a release with a token or a session that is not the holder's.
func (c *comparison) edges(name string) {
	c.Helper()
	whole := func(session string) protocol.Request {
		return protocol.Request{Name: name, Session: session, Attempt: crand.Text(), Patient: true}
	}
	holder, other := c.sessions[0], c.sessions[1]
	r := whole(holder)
	r.MinHold = later
	c.tick(name)
	c.joins(r)
	c.joins(whole(other))
	row, _ := c.memory.Row(name)
	c.removes(name, held{session: holder, token: row.Last}, protocol.ByHolder, false, false)
	c.run(func(bool) protocol.Op {
		return protocol.EndRest{Name: name, Event: protocol.Event{Name: name, Kind: "asked", Session: holder}}
	})
	take := whole(holder)
	c.run(func(bool) protocol.Op { return protocol.Take{Request: take} })
	c.removes(name, held{}, protocol.Nothing, false, false)
	row, _ = c.memory.Row(name)
	for _, wrong := range []held{
		{session: other, token: row.Last - 1}, {session: holder, token: row.Last}, {session: other, token: row.Last},
	} {
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
	event := protocol.Event{Name: name, Kind: "broken", Session: self}
	c.either(func(mine bool) protocol.Op {
		token := c.token(name, h.token, mine)
		holder := protocol.Holder{Session: h.session, Attempt: h.attempt, Grant: protocol.Grant{Token: token}}
		if h.over {
			holder.Grant.Lease = -1
		}
		switch cause {
		case protocol.ByHolder:
			held := protocol.Held{Name: name, Session: h.session, Token: token, Shared: h.shared}
			return protocol.Release(held, contended, guarded)
		case protocol.ByAttempt:
			return protocol.Undo(h.session, name, h.attempt)
		case protocol.ByTime:
			return protocol.TakeOver(self, name, holder)
		case protocol.ByForce:
			return protocol.Break(self, name, holder, event)
		}
		return protocol.TakeOver(self, name, protocol.Holder{})
	})
}

// convert makes one of the requests that no engine has a short way for.
func (c *comparison) convert(name string) {
	c.Helper()
	h, r := c.some(name), c.asks(name)
	event, d := protocol.Event{Name: name, Kind: "asked", Session: h.session}, c.duration()
	by, member := int64(c.IntN(7200)-3600)*1e6, h.first+c.Int64N(h.token-h.first+1)
	kind, members, all := c.IntN(11), c.IntN(int(h.token-member)+1), c.chance(2)
	if kind == 7 && h.host != "" {
		r.Host, r.Thread = h.host, h.thread
	}
	op := func(mine bool) protocol.Op {
		lock := protocol.Held{Name: name, Session: h.session, Token: c.token(name, h.token, mine), Shared: h.shared}
		switch kind {
		case 0:
			return protocol.Extend{Held: lock, For: d}
		case 1:
			return protocol.Downgrade{Held: lock}
		case 2:
			return protocol.Upgrade{Held: lock, Attempt: h.attempt}
		case 3:
			return protocol.Raise{Held: lock, Attempt: h.attempt, To: lock.Token + by}
		case 4:
			behind := protocol.Request{Session: h.session, Host: "behind", Thread: "t", Attempt: r.Attempt,
				Patient: true}
			behind.Members = members // those behind it that still wait
			d := protocol.Detachment{Token: lock.Token - (h.token - member), Host: "member", Thread: "t",
				Behind: behind}
			return protocol.Detach{Held: lock, Member: d}
		case 5:
			return protocol.Ask{Name: name, Reason: "please", Event: event}
		case 6:
			if all {
				lock.Token = 0
			}
			return protocol.EndRest{Name: name, Token: lock.Token, Event: event}
		case 7:
			r.Units, r.Of, r.Members = 0, 0, 1
			return protocol.Reenter{Request: r}
		case 8:
			return protocol.Announce{Held: lock, Event: event}
		case 9:
			return protocol.Show{Name: name, Token: lock.Token}
		}
		to := protocol.Request{Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt}
		return protocol.Move{Held: lock, Attempt: h.attempt, To: to, Self: h.session}
	}
	c.doing = fmt.Sprintf("%T %+v of %+v", op(false), op(false), h)
	c.run(op)
	if kind == 10 && c.chance(2) { // once more, as after an answer that was lost
		c.run(op)
	}
}

// batch takes and releases several names at once.
func (c *comparison) batch() {
	c.Helper()
	var ops, mine []protocol.Op // mine: with tokens of the memory
	for _, name := range c.names {
		if h := c.some(name); !h.queue && h.token != 0 && c.chance(2) {
			lock := protocol.Held{Name: name, Session: h.session, Token: h.token, Shared: h.shared}
			mine = append(mine, protocol.Release(lock, false, false))
			lock.Token = c.token(name, h.token, false)
			ops = append(ops, protocol.Release(lock, false, false))
		} else if c.chance(2) {
			r := c.asks(name)
			r.Units, r.Of, r.Members, r.MinHold = 0, 0, 1, 0
			ops, mine = append(ops, protocol.Take{Request: r}), append(mine, protocol.Take{Request: r})
		}
	}
	if len(ops) < 2 {
		return
	}
	c.doing = fmt.Sprintf("a batch of %+v", ops)
	results, err := c.Run(c.ctx, ops...)
	if err != nil || len(results) != len(ops) {
		c.failf("%d results, %v", len(results), err)
	}
	for i, op := range protocol.Together(mine) {
		_, takes := op.(protocol.Take)
		if _, known := c.memory.Row(op.On()); !known && takes && !results[i].Done() {
			continue // it may leave out a name that is new
		}
		c.compare(results[i], nil, op)
	}
}

// sequence makes several requests of one living session as one op, which must do what they do one
// by one.
func (c *comparison) sequence(name string) {
	c.Helper()
	session := c.some(name).session
	if !c.alive[session] {
		return
	}
	var ops, mine protocol.Sequence // mine: with tokens of the memory
	release := func(token int64, shared, guarded bool) {
		lock := protocol.Held{Name: name, Session: session, Token: token, Shared: shared}
		mine = append(mine, protocol.Release(lock, true, guarded))
		lock.Token = c.token(name, token, false)
		ops = append(ops, protocol.Release(lock, true, guarded))
	}
	if c.chance(3) { // all shares of the session
		for _, s := range c.memory.Shares(name) {
			if s.Session == session {
				release(s.Token, true, false)
			}
		}
	}
	for range 2 + c.IntN(4) {
		switch h := c.some(name); {
		case h.session == session && h.queue:
			undo := protocol.Undo(session, name, h.attempt)
			ops, mine = append(ops, undo), append(mine, undo)
		case h.session == session && h.token != 0 && c.chance(2):
			release(h.token, h.shared, c.chance(8))
		default:
			r := c.asks(name)
			r.Session = session
			op := protocol.Op(c.extends(r))
			if c.chance(3) {
				op = protocol.Take{Request: r}
			}
			ops, mine = append(ops, op), append(mine, op)
		}
	}
	c.doing = fmt.Sprintf("a sequence of %+v", ops)
	got, err := driver.Do(c.ctx, c, ops)
	row, known := c.memory.Row(name)
	places, shares := c.memory.Places(name), c.memory.Shares(name)
	var notices []protocol.Notice
	refused := false
	for i, op := range mine {
		want, changes, wantErr := c.memory.Apply(op)
		if wantErr != nil { // nothing of the sequence was done
			c.results(name, got, err, want, wantErr)
			if c.memory.Put(row, places, shares); !known {
				c.memory.Delete(name)
			}
			notices, refused = nil, true
			break
		}
		if err == nil {
			c.results(name, got.Each[i], nil, want, nil)
			notices = append(notices, changes.Notices...)
		}
	}
	if err != nil && !refused {
		c.failf("%v, the protocol refuses none of them", err)
	}
	c.rows(name)
	c.hints(notices)
}
