package suite

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var handingOver = inPlaces(own{
	{"of many queues of all kinds, each is served as the protocol says", handOvers},
	{"random requests have the answers, and leave the rows, that the protocol says", sameAsProtocol},
})

// sameAsProtocol has a fixed seed, so that a failure comes again. Each listener has two
// connections, with that of the heartbeats.
func sameAsProtocol(t *testing.T, e *env) {
	for _, attended := range []bool{false, true} {
		a := e.app(t, 32)
		if attended {
			t.Cleanup(a.Backend.Attend("", time.Minute))
		}
		var engine oracle.Engine = a.Backend
		if e.wiring.reserves() {
			engine = oracle.WakesOnly{Backend: a.Backend}
		}
		steps := 100 // engines of this module have a test of their own with more
		if unabridged() {
			steps = 400
		}
		oracle.Compare(t, engine, 20, steps)
	}
}

// handOvers puts random states into the tables, makes room in each through the driver, and compares
// the tables with what the protocol makes of them in memory. The seed is fixed, so that a failure
// comes again.
func handOvers(t *testing.T, e *env) {
	b := e.app(t, 3).Backend
	sessions := map[bool][]string{false: {id(), id()}, true: {id(), id()}} // by whether they are dead
	for _, s := range slices.Concat(sessions[false], sessions[true]) {
		require.NoError(t, b.OpenSession(t.Context(), driver.Session{ID: s, Host: "h", App: "test", TTL: time.Hour}))
	}
	e.end(t, sessions[true][0])
	e.exec(t, "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", sessions[true][1])

	random := rand.New(rand.NewPCG(20, 26))
	scenes := make([]scene, 100)
	for i := range scenes {
		scenes[i] = randomScene(random, fmt.Sprintf("n%d", i), sessions)
	}
	e.stage(t, scenes)
	told, next := make([]string, len(scenes)), make([][]protocol.Handoff, len(scenes))
	wanted := make([]result, len(scenes))
	for i := range scenes {
		s := &scenes[i]
		told[i] = s.String()
		r, batch := s.leave(random.IntN(4))
		wanted[i] = s.served(t, r)
		if batch {
			if _, released, err := drivertest.Batch(t.Context(), b, nil, []protocol.Held{r.Held()}); err != nil {
				t.Fatalf("%s: %v", told[i], err)
			} else if released[0] {
				continue
			}
		}
		var err error
		var left bool
		if next[i], left, err = drivertest.Remove(t.Context(), b, r); err != nil || s.leaves != nil && !left {
			t.Fatalf("%s: %v, %v", told[i], left, err)
		}
	}
	found := make([]result, len(scenes))
	e.through(t, false, func() { // all at once: an engine without SQL copies its tables for it
		copied := *e
		copied.wiring.Through = nil
		for i, s := range scenes {
			found[i] = copied.found(t, s.name)
		}
	})
	for i, s := range scenes {
		got := found[i]
		if got.used > 0 {
			got.of = capacity(t, b, s.name)
		}
		for _, h := range next[i] {
			got.granted = append(got.granted, h.Attempt)
		}
		if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", wanted[i]); got != want {
			t.Errorf("%s:\n got %s\nwant %s", told[i], got, want)
		}
	}
}

// participant has part of a name, or waits for it.
type participant struct {
	attempt string
	session string
	dead    bool
	units   int // 0: the whole name
	members int // with it: of a cohort
	of      int // with units: how many there are, as it states
	token   int64
}

// scene is all that decides about one name.
type scene struct {
	name    string
	least   int // that a participant states
	rests   bool
	holders []participant
	waiters []participant
	now     int64
	leaves  *participant // the holder or waiter that makes room; nil: it is there already
}

// result is what came of a scene, by attempts.
type result struct {
	whole   string
	shares  []string // in the order of their tokens
	waiting []string // in the order of their tickets
	members int      // of all that wait
	used    int
	of      int      // the smallest number that a holder states
	granted []string // as the driver told it
}

func randomScene(random *rand.Rand, name string, sessions map[bool][]string) scene {
	s := scene{name: name, least: 1 + random.IntN(8), rests: random.IntN(12) == 0}
	if random.IntN(4) == 0 {
		s.least = protocol.Readers
	}
	size := func() int { // one in three states more
		if s.least == protocol.Readers {
			return s.least
		}
		return s.least + max(0, random.IntN(6)-3)
	}
	add := func(list *[]participant, kind string, units int, dead bool) {
		p := participant{
			attempt: fmt.Sprintf("%s%s%d", name, kind, len(*list)), session: sessions[dead][random.IntN(2)], dead: dead,
			units: units, of: size(), token: int64(len(*list) + 1), members: 1,
		}
		if units == 0 && random.IntN(2) == 0 {
			p.members = 2 + random.IntN(3)
		}
		*list = append(*list, p)
	}
	some := func(most int) int { return 1 + random.IntN(min(most, 4)) }
	switch random.IntN(5) {
	case 0, 1:
		add(&s.holders, "h", 0, random.IntN(3) == 0)
	case 2, 3:
		left := s.least
		for range 1 + random.IntN(3) {
			if left > 0 {
				units := some(left)
				left -= units
				add(&s.holders, "h", units, random.IntN(3) == 0)
			}
		}
	}
	for range max(0, random.IntN(12)-2) {
		units := 0
		if random.IntN(4) > 0 {
			units = some(s.least)
		}
		add(&s.waiters, "w", units, random.IntN(3) == 0)
	}
	participants := s.holders
	if len(participants) == 0 || random.IntN(4) == 0 {
		participants = s.waiters
	}
	if len(participants) > 0 && random.IntN(6) > 0 {
		leaves := participants[random.IntN(len(participants))]
		s.leaves = &leaves
	}
	return s
}

// stage writes the scenes into the tables.
func (e *env) stage(t *testing.T, scenes []scene) {
	t.Helper()
	now := e.now(t)
	var locks, shares, waiters []string
	for i := range scenes {
		s := &scenes[i]
		s.now = now
		is, held, places := s.rows()
		session := "NULL"
		if is.Session != "" {
			session = "'" + is.Session + "'"
		}
		for _, p := range held {
			shares = append(shares, fmt.Sprintf("('%s', %d, '%s', 'h', '', '%s', %d, %d, %d, '')", s.name, p.Token,
				p.Session, p.Attempt, p.Units, p.Of, now))
		}
		for _, p := range places {
			waiters = append(waiters, fmt.Sprintf("('%s', %d, '%s', 'h', '', '%s', 0, '', %d, %d, %d, 0, %d)", s.name,
				p.Ticket, p.Session, p.Attempt, now, p.Units, p.Of, p.Members))
		}
		locks = append(locks, fmt.Sprintf("('%s', %s, 'h', '', '%s', %d, %d, %d, %d, %d, %d, '', %d, %d, %v, %d)",
			s.name, session, is.Attempt, is.Token, is.First, is.Last, now, is.Waiters, is.Next, is.Units, is.Capacity,
			is.Mixed, is.Rests))
	}
	for _, table := range []struct {
		into string
		rows []string
	}{
		{"dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, acquired_at, " +
			"waiters, next_ticket, metadata, shared_units, capacity, mixed, rests_until)", locks},
		{"dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, metadata)",
			shares},
		{"dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, " +
			"capacity, min_hold, members)", waiters},
	} {
		e.exec(t, "INSERT INTO "+table.into+" VALUES "+strings.Join(table.rows, ", "))
	}
}

// rows are the rows of the name.
func (s *scene) rows() (is protocol.Row, shares []protocol.Share, places []protocol.Place) {
	is = protocol.Row{Name: s.name, Since: s.now, Token: 10, First: 10, Last: 10, Head: 1,
		Next: int64(len(s.waiters)) + 1}
	for _, p := range s.holders {
		if p.units == 0 {
			is.Session, is.Host, is.Attempt = p.session, "h", p.attempt
			is.First, is.Last = 1, int64(p.members)
			continue
		}
		is = is.With(p.units, p.of)
		shares = append(shares, protocol.Share{Session: p.session, Host: "h", Attempt: p.attempt, Token: p.token,
			Units: p.units, Of: p.of, Since: s.now})
	}
	for i, p := range s.waiters {
		is.Waiters += p.members
		places = append(places, protocol.Place{Ticket: int64(i) + 1, Since: s.now, Request: protocol.Request{
			Name: s.name, Session: p.session, Host: "h", Attempt: p.attempt, Members: p.members, Units: p.units,
			Of: p.of,
		}})
	}
	if is.Units == 0 { // it only tells readers from permits
		is.Capacity = s.least
	}
	if s.rests {
		is.Rests = s.now + time.Hour.Microseconds()
	}
	return is, shares, places
}

// leave makes room, by one of the ways in which that can be done; batch: by a batch at first.
func (s *scene) leave(way int) (r protocol.Removal, batch bool) {
	p := s.leaves
	if p == nil {
		return protocol.TakeOver("", s.name, protocol.Holder{}), false
	}
	h := protocol.Held{Name: s.name, Session: p.session, Token: p.token, Shared: p.units > 0}
	if p.units == 0 {
		h.Token = int64(p.members)
	}
	switch holds := slices.ContainsFunc(s.holders,
		func(other participant) bool { return other.attempt == p.attempt }); {
	case p.dead && holds:
		return protocol.TakeOver("", s.name, protocol.Holder{Session: p.session, Attempt: p.attempt, Units: p.units,
			Grant: protocol.Grant{Token: h.Token}}), false
	case p.dead:
		return protocol.TakeOver("", s.name, protocol.Holder{Session: p.session, Attempt: p.attempt}), false
	case holds && way > 0:
		return protocol.Release(h, way == 1, false), way == 3 && len(s.waiters) == 0
	}
	return protocol.Undo(p.session, s.name, p.attempt), false
}

// served is what the protocol makes of the scene.
func (s *scene) served(t *testing.T, r protocol.Removal) (is result) {
	t.Helper()
	dead := map[string]bool{}
	for _, p := range slices.Concat(s.holders, s.waiters) {
		dead[p.session] = p.dead
	}
	names := memory.Names{
		Now:    func() int64 { return s.now },
		Alive:  func(session string) bool { return !dead[session] },
		Expire: func(session string) bool { return dead[session] },
	}
	row, shares, places := s.rows()
	names.Put(row, places, shares)
	left, _, err := names.Run(r)
	require.NoError(t, err)
	if !left.Done() && s.leaves != nil {
		t.Errorf("%s has nothing that leaves", s.name)
	}
	row, _ = names.Row(s.name)
	is.whole, is.members, is.used = row.Attempt, row.Waiters, row.Units
	for _, share := range names.Shares(s.name) {
		is.shares = append(is.shares, share.Attempt)
	}
	for _, p := range names.Places(s.name) {
		is.waiting = append(is.waiting, p.Attempt)
	}
	for _, h := range left.Next {
		is.granted = append(is.granted, h.Attempt)
	}
	if is.used > 0 {
		is.of = row.Capacity
	}
	return is
}

// found is what the tables say of a name, after a check that its row counts what is there.
func (e *env) found(t *testing.T, name string) (is result) {
	t.Helper()
	is.whole = e.text(t, "SELECT attempt FROM dblock_locks WHERE name = ? AND session_id IS NOT NULL", name)
	is.shares = e.attempts(t, "SELECT attempt FROM dblock_shares WHERE name = ? ORDER BY token", name)
	is.used = int(e.number(t, "SELECT shared_units FROM dblock_locks WHERE name = ?", name))
	units := e.number(t, "SELECT sum(units) FROM dblock_shares WHERE name = ?", name)
	is.waiting = e.attempts(t, "SELECT attempt FROM dblock_waiters WHERE name = ? ORDER BY ticket", name)
	is.members = int(e.number(t, "SELECT waiters FROM dblock_locks WHERE name = ?", name))
	if there := e.waiting(t, name); is.used != int(units) || is.members != there {
		t.Errorf("%s counts %d units and %d waiters: %d units are shared, and %d wait", name, is.used, is.members,
			units, there)
	}
	return is
}

// capacity is what is seen of a name, which need not stand in its row.
func capacity(t *testing.T, b driver.Backend, name string) int {
	t.Helper()
	states, err := b.Read(t.Context(), "", []string{name}, 0)
	if err != nil || len(states) != 1 {
		t.Fatalf("a look at %s: %v, %v", name, states, err)
	}
	return states[0].Capacity
}

// attempts reads a column.
func (e *env) attempts(t *testing.T, query, name string) (list []string) {
	t.Helper()
	e.through(t, false, func() {
		rows, err := e.look.QueryContext(t.Context(), e.db.Text(query), name)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var attempt string
			require.NoError(t, rows.Scan(&attempt))
			list = append(list, attempt)
		}
		require.NoError(t, rows.Err())
	})
	return list
}

func (s *scene) String() string {
	text := fmt.Sprintf("%s, resting: %v", s.name, s.rests)
	for _, p := range slices.Concat(s.holders, s.waiters) {
		text += fmt.Sprintf("; %s: %d of %d", p.attempt, p.units, p.of)
		if p.dead {
			text += " (dead)"
		}
	}
	if s.leaves != nil {
		text += "; " + s.leaves.attempt + " leaves"
	}
	return text
}
