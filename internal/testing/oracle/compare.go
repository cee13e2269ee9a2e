package oracle

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// tokens are pairs of a token of the memory and the engine's for the same grant.
type tokens struct{ pairs [][2]int64 }

// of is the engine's token for one of the memory; one that nobody has, where there is none.
func (t *tokens) of(mem int64) int64 {
	for _, pair := range t.pairs {
		if pair[0] == mem {
			return pair[1]
		}
	}
	return mem
}

// match reports whether a token of the engine can be that of the memory: each has one of the other,
// and both have the same order.
func (t *tokens) match(engine, mem int64) bool {
	if engine == 0 || mem == 0 {
		return engine == mem
	}
	for _, pair := range t.pairs {
		if pair[0] == mem || pair[1] == engine {
			return pair == [2]int64{mem, engine}
		}
		if pair[0] < mem != (pair[1] < engine) {
			return false
		}
	}
	t.pairs = append(t.pairs, [2]int64{mem, engine})
	return true
}

// results compares the result of the engine with that of the protocol.
func (c *comparison) results(name string, got protocol.Result, err error, want protocol.Result, wantErr error) {
	c.Helper()
	for _, kind := range []error{driver.ErrNotHeld, driver.ErrCapacity} {
		if errors.Is(err, kind) && errors.Is(wantErr, kind) {
			return
		}
	}
	if err != nil || wantErr != nil {
		c.failf("error %v, the protocol says %v", err, wantErr)
	}
	if got.Outcome != want.Outcome || got.Ahead != want.Ahead || got.Holders != want.Holders {
		c.failf("%+v, the protocol says %+v", got, want)
	}
	c.grants(name, got.Grant, want.Grant)
	if len(got.Next) != len(want.Next) {
		c.failf("hand-offs %+v, the protocol says %+v", got.Next, want.Next)
	}
	for i, h := range got.Next {
		if w := want.Next[i]; h.Session != w.Session || h.Attempt != w.Attempt {
			c.failf("hand-off %+v, the protocol says %+v", h, w)
		}
		c.grants(name, h.Grant, want.Next[i].Grant)
	}
}

// grants compares two grants.
func (c *comparison) grants(name string, got, want protocol.Grant) {
	c.Helper()
	if !c.tokens[name].match(got.First, want.First) || !c.tokens[name].match(got.Token, want.Token) ||
		got.Token-got.First != want.Token-want.First ||
		got.Contended != want.Contended || !near(int64(got.Lease/time.Microsecond),
		int64(want.Lease/time.Microsecond)) {
		c.failf("grant %+v, the protocol says %+v", got, want)
	}
}

// near compares times: 0 is none.
func near(a, b int64) bool {
	return (a == 0) == (b == 0) && max(a-b, b-a) < coarse.Microseconds()
}

// rows compares the rows of a name.
func (c *comparison) rows(name string) {
	c.Helper()
	was, wasMem := c.before[name], c.now
	is := c.read(name)
	c.before[name] = is.row
	row, known := c.memory.Row(name)
	if !known {
		if is.row.Session != "" || is.row.Token != 0 || is.row.Next > 1 || len(is.places)+len(is.shares) > 0 {
			c.failf("rows %+v of a name that has none", is)
		}
		return
	}
	c.row(is.row, row)
	switch {
	case is.row.Token < was.Token:
		c.failf("the token has fallen from %d to %d", was.Token, is.row.Token)
	case is.row.Token > was.Token && is.row.Token < wasMem:
		c.failf("the token %d is below the clock, %d", is.row.Token, wasMem)
	case len(is.places) > 0 && is.row.Head > is.places[0].Ticket:
		c.failf("the head is %d, the first ticket %d", is.row.Head, is.places[0].Ticket)
	}
	places := c.memory.Places(name)
	if len(is.places) != len(places) {
		c.failf("places %+v\nthe protocol says %+v", is.places, places)
	}
	for i, p := range is.places {
		places[i].Alive = c.alive[p.Session]
		if !samePlace(p, places[i]) || i > 0 && p.Ticket <= is.places[i-1].Ticket {
			c.failf("place %+v\nthe protocol says %+v", p, places[i])
		}
	}
	shares := c.memory.Shares(name)
	slices.SortFunc(is.shares, func(a, b protocol.Share) int { return int(a.Token - b.Token) })
	if len(is.shares) != len(shares) {
		c.failf("shares %+v\nthe protocol says %+v", is.shares, shares)
	}
	for i, s := range is.shares {
		if !c.tokens[name].match(s.Token, shares[i].Token) || !sameShare(s, shares[i]) {
			c.failf("share %+v\nthe protocol says %+v", s, shares[i])
		}
	}
}

// row compares the row of a name.
func (c *comparison) row(got, want protocol.Row) {
	c.Helper()
	pairs := c.tokens[want.Name]
	same := pairs.match(got.First, want.First) && pairs.match(got.Last, want.Last) &&
		pairs.match(got.Token, want.Token) &&
		near(got.Since, want.Since) && near(got.Ends, want.Ends) &&
		near(max(got.Rests, c.now), max(want.Rests, c.now)) // one that is over does not count
	g, w := got, want
	for _, r := range []*protocol.Row{&g, &w} {
		r.First, r.Last, r.Token, r.Since, r.Ends, r.Rests, r.Head = 0, 0, 0, 0, 0, 0, 0
		r.Metadata = strings.ReplaceAll(r.Metadata, " ", "")
		if r.Units == 0 && r.Waiters == 0 {
			r.Capacity = 0 // it does not count
		}
	}
	if !same || g != w {
		c.failf("row %+v\nthe protocol says %+v", got, want)
	}
}

func samePlace(a, b protocol.Place) bool {
	if !near(a.Since, b.Since) {
		return false
	}
	for _, p := range []*protocol.Place{&a, &b} {
		p.Since, p.Ticket, p.Name, p.Patient, p.Members = 0, 0, "", false, max(p.Members, 1)
		p.Metadata = strings.ReplaceAll(p.Metadata, " ", "")
	}
	return a == b
}

func sameShare(a, b protocol.Share) bool {
	if !near(a.Since, b.Since) || !near(a.Ends, b.Ends) {
		return false
	}
	for _, s := range []*protocol.Share{&a, &b} {
		s.Since, s.Ends, s.Token = 0, 0, 0
		s.Metadata = strings.ReplaceAll(s.Metadata, " ", "")
	}
	return a == b
}
