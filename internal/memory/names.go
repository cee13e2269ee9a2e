// Package memory is the smallest engine: it writes the results of package protocol into slices.
// Names has the rows of names alone, and the engines with a database are compared with it. DB has
// all tables, for tests.
package memory

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Names has the rows of names. The caller makes one transition at a time.
type Names struct {
	Now    func() int64                             // microseconds since 1970
	Alive  func(session string) bool                // neither dead nor expired
	Expire func(session string) (dead bool)         // that of protocol.Source
	Seize  func(attempt string, holdOff bool) error // that of protocol.Source; nil: no hold is ever guarded

	names map[string]*name
}

// name is the row of a name, with its places in the order of tickets and its shares in the order of
// tokens.
type name struct {
	row    protocol.Row
	places []protocol.Place
	shares []protocol.Share
}

// Apply applies an op, writes its changes, and returns them: the caller sends the hints. After an
// error nothing is written. A name gets a row if the op changes it.
func (m *Names) Apply(op protocol.Op) (protocol.Result, protocol.Changes, error) {
	is, now := op.On(), m.Now()
	n := m.names[is]
	if n == nil {
		n = &name{row: protocol.Row{Name: is, Since: now, Head: 1, Next: 1}}
	}
	open := protocol.Open(n.row, now, source{m, n})
	result, err := op.Apply(open)
	if err != nil {
		return protocol.Result{}, protocol.Changes{}, err
	}
	if m.names[is] == nil && open.Changed() {
		if m.names == nil {
			m.names = map[string]*name{}
		}
		m.names[is] = n
	}
	n.write(open)
	return result, open.Changes, nil
}

// write writes the changes of a transition.
func (n *name) write(open *protocol.Name) {
	n.row = open.Row
	for _, gone := range open.GonePlaces {
		n.places = slices.DeleteFunc(n.places, func(p protocol.Place) bool { return p.Ticket == gone.Ticket })
	}
	for _, set := range open.SetPlaces {
		n.places = slices.DeleteFunc(n.places, func(p protocol.Place) bool { return p.Ticket == set.Ticket })
	}
	n.places = slices.Concat(n.places, open.PutPlaces, open.SetPlaces)
	slices.SortFunc(n.places, func(a, b protocol.Place) int { return cmp.Compare(a.Ticket, b.Ticket) })
	for _, gone := range open.GoneShares {
		n.shares = slices.DeleteFunc(n.shares, func(s protocol.Share) bool { return s.Token == gone.Token })
	}
	for _, put := range slices.Concat(open.PutShares, open.SetShares) {
		n.shares = slices.DeleteFunc(n.shares, func(s protocol.Share) bool { return s.Token == put.Token })
		n.shares = append(n.shares, put)
	}
	slices.SortFunc(n.shares, func(a, b protocol.Share) int { return cmp.Compare(a.Token, b.Token) })
}

// Row returns the row of a name; false: it has none.
func (m *Names) Row(is string) (protocol.Row, bool) {
	if n := m.names[is]; n != nil {
		return n.row, true
	}
	return protocol.Row{Name: is}, false
}

// Places returns the queue of a name, in the order of tickets.
func (m *Names) Places(is string) []protocol.Place {
	if n := m.names[is]; n != nil {
		return slices.Clone(n.places)
	}
	return nil
}

// Shares returns the shares of a name, in the order of tokens.
func (m *Names) Shares(is string) []protocol.Share {
	if n := m.names[is]; n != nil {
		return slices.Clone(n.shares)
	}
	return nil
}

// All returns the names that have a row, in the order of their bytes.
func (m *Names) All() []string { return slices.Sorted(maps.Keys(m.names)) }

// Put replaces the rows of a name.
func (m *Names) Put(row protocol.Row, places []protocol.Place, shares []protocol.Share) {
	if m.names == nil {
		m.names = map[string]*name{}
	}
	n := &name{row: row}
	n.write(&protocol.Name{Row: row, Changes: protocol.Changes{PutPlaces: places, PutShares: shares}})
	m.names[row.Name] = n
}

// Delete deletes the row of a name.
func (m *Names) Delete(is string) { delete(m.names, is) }

// source implements protocol.Source for one name.
type source struct {
	*Names
	n *name
}

// Places implements protocol.Source.
func (s source) Places(after int64, limit int) (places []protocol.Place, err error) {
	for _, p := range s.n.places {
		if p.Ticket > after && len(places) < limit {
			p.Alive = s.Names.Alive(p.Session)
			places = append(places, p)
		}
	}
	return places, nil
}

// Place implements protocol.Source.
func (s source) Place(session, attempt string) (protocol.Place, bool, error) {
	for _, p := range s.n.places {
		if p.Session == session && p.Attempt == attempt {
			p.Alive = s.Names.Alive(session)
			return p, true, nil
		}
	}
	return protocol.Place{}, false, nil
}

// ShareOf implements protocol.Source.
func (s source) ShareOf(session, attempt string) (protocol.Share, bool, error) {
	for _, share := range s.n.shares {
		if share.Session == session && share.Attempt == attempt {
			return share, true, nil
		}
	}
	return protocol.Share{}, false, nil
}

// Shares implements protocol.Source.
func (s source) Shares(tokens ...int64) (shares []protocol.Share, err error) {
	for _, share := range s.n.shares {
		if len(tokens) == 0 || slices.Contains(tokens, share.Token) {
			shares = append(shares, share)
		}
	}
	return shares, nil
}

// Tally implements protocol.Source.
func (s source) Tally() (t protocol.Tally, err error) {
	for i, p := range s.n.places {
		if t.Waiters += max(p.Members, 1); i == 0 {
			t.First = p.Ticket
		}
		t.Last = p.Ticket
	}
	for i, share := range s.n.shares {
		if t.Units += share.Units; i == 0 {
			t.Smallest = share.Of
		}
		t.Smallest, t.Largest = min(t.Smallest, share.Of), max(t.Largest, share.Of)
	}
	return t, nil
}

// Expire implements protocol.Source.
func (s source) Expire(session string) (bool, error) { return s.Names.Expire(session), nil }

// Seize implements protocol.Source.
func (s source) Seize(attempt string, holdOff bool) error {
	if s.Names.Seize == nil {
		return nil
	}
	return s.Names.Seize(attempt, holdOff)
}
