package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/drivertest"
	"github.com/dblock-go/dblock/internal/queue"
)

var handingOver = inPlaces(own{
	{"of many queues of all kinds, each is served as the rules of the queue say", handOvers},
})

// handOvers puts random states into the tables, makes room in each through the driver, and compares
// the tables with what internal/queue says. The seed is fixed, so that a failure comes again.
func handOvers(t *testing.T, e *env) {
	b := e.app(t, 3).Backend
	sessions := map[bool][]string{false: {id(), id()}, true: {id(), id()}} // by whether they are dead
	for _, s := range slices.Concat(sessions[false], sessions[true]) {
		if err := b.OpenSession(t.Context(), driver.Session{ID: s, Host: "h", App: "test", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	e.end(t, sessions[true][0])
	e.exec(t, "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", sessions[true][1])

	random := rand.New(rand.NewPCG(20, 26))
	scenes := make([]scene, 100)
	for i := range scenes {
		scenes[i] = randomScene(random, fmt.Sprintf("n%d", i), sessions)
	}
	e.stage(t, scenes)
	told, next := make([]string, len(scenes)), make([][]driver.Handoff, len(scenes))
	for i := range scenes {
		told[i] = scenes[i].String()
		var err error
		if next[i], err = scenes[i].leave(t.Context(), b, random.IntN(4)); err != nil {
			t.Fatalf("%s: %v", told[i], err)
		}
	}
	found, wanted := make([]result, len(scenes)), make([]result, len(scenes))
	e.through(t, false, func() { // all at once: an engine without SQL copies its tables for it
		copied := *e
		copied.wiring.Through = nil
		for i, s := range scenes {
			var loose []string
			wanted[i], loose = s.served()
			found[i] = copied.found(t, s.name, loose)
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

// party has part of a name, or waits for it.
type party struct {
	attempt string
	session string
	dead    bool
	units   int // 0: the whole name
	of      int // with units: how many there are, as it states
	token   int64
}

// scene is all that decides about one name.
type scene struct {
	name    string
	least   int // that a party states
	rests   bool
	holders []party
	waiters []party
	leaves  *party // the holder or waiter that makes room; nil: it is there already
}

// result is what came of a scene, by attempts.
type result struct {
	whole   string
	shares  []string // in the order of their tokens
	waiting []string // in the order of their tickets
	used    int
	of      int      // the smallest number that a holder states
	granted []string // as the driver told it
}

func randomScene(random *rand.Rand, name string, sessions map[bool][]string) scene {
	s := scene{name: name, least: 1 + random.IntN(8), rests: random.IntN(12) == 0}
	if random.IntN(4) == 0 {
		s.least = driver.Readers
	}
	size := func() int { // one in three states more
		if s.least == driver.Readers {
			return s.least
		}
		return s.least + max(0, random.IntN(6)-3)
	}
	add := func(list *[]party, kind string, units int, dead bool) {
		*list = append(*list, party{
			attempt: fmt.Sprintf("%s%s%d", name, kind, len(*list)), session: sessions[dead][random.IntN(2)], dead: dead,
			units: units, of: size(), token: int64(len(*list) + 1),
		})
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
	parties := s.holders
	if len(parties) == 0 || random.IntN(4) == 0 {
		parties = s.waiters
	}
	if len(parties) > 0 && random.IntN(6) > 0 {
		leaves := parties[random.IntN(len(parties))]
		s.leaves = &leaves
	}
	return s
}

// stage writes the scenes into the tables.
func (e *env) stage(t *testing.T, scenes []scene) {
	t.Helper()
	now := e.now(t)
	var locks, shares, waiters []string
	for _, s := range scenes {
		session, attempt, rests := "NULL", "", int64(0)
		for _, p := range s.holders {
			if p.units == 0 {
				session, attempt = "'"+p.session+"'", p.attempt
			} else {
				shares = append(shares, fmt.Sprintf("('%s', %d, '%s', 'h', '', '%s', %d, %d, %d, '')", s.name, p.token, p.session, p.attempt, p.units, p.of, now))
			}
		}
		is := s.state()
		if is.Used == 0 { // it only tells readers from permits
			is.Capacity = s.least
		}
		if s.rests {
			rests = now + time.Hour.Microseconds()
		}
		for i, p := range s.waiters {
			waiters = append(waiters, fmt.Sprintf("('%s', %d, '%s', 'h', '', '%s', 0, '', %d, %d, %d, 0)", s.name, i+1, p.session, p.attempt, now, p.units, p.of))
		}
		token := max(1, len(s.holders))
		locks = append(locks, fmt.Sprintf("('%s', %s, 'h', '', 1, '%s', %d, %d, %d, %d, %d, %d, '', %d, %d, %v, %d)",
			s.name, session, attempt, token, token, token, now, len(s.waiters), len(s.waiters)+1, is.Used, is.Capacity, is.Mixed, rests))
	}
	for _, table := range []struct {
		into string
		rows []string
	}{
		{"dblock_locks (name, session_id, host, thread, holds, attempt, token, first_token, last_token, acquired_at, waiters, next_ticket, metadata, shared_units, capacity, mixed, rests_until)", locks},
		{"dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, metadata)", shares},
		{"dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold)", waiters},
	} {
		e.exec(t, "INSERT INTO "+table.into+" VALUES "+strings.Join(table.rows, ", "))
	}
}

// leave makes room, by one of the ways in which that can be done.
func (s *scene) leave(ctx context.Context, b driver.Backend, way int) (next []driver.Handoff, err error) {
	p := s.leaves
	if p == nil {
		next, _, err = drivertest.TakeOver(ctx, b, "", s.name, driver.Holder{})
		return next, err
	}
	is := func(other party) bool { return other.attempt == p.attempt }
	holds := slices.ContainsFunc(s.holders, is)
	s.holders, s.waiters = slices.DeleteFunc(s.holders, is), slices.DeleteFunc(s.waiters, is)
	switch {
	case p.dead:
		dead := driver.Holder{Session: p.session, Attempt: p.attempt, Units: p.units}
		if holds {
			dead.Grant.Token = p.token
		}
		var taken bool
		if next, taken, err = drivertest.TakeOver(ctx, b, "", s.name, dead); err == nil && !taken {
			err = fmt.Errorf("%s was not reclaimed", p.attempt)
		}
		return next, err
	case holds && way == 3 && len(s.waiters) == 0:
		h := driver.Held{Name: s.name, Session: p.session, Token: p.token, Shared: p.units > 0}
		if _, released, err := b.Batch(ctx, nil, []driver.Held{h}); err != nil || released[0] {
			return nil, err
		}
		return drivertest.Release(ctx, b, h, false)
	case holds && way > 0:
		return drivertest.Release(ctx, b, driver.Held{Name: s.name, Session: p.session, Token: p.token, Shared: p.units > 0}, way == 1)
	}
	return drivertest.Undo(ctx, b, p.session, s.name, p.attempt)
}

// served is what must come of the scene, now that room was made. The dead just behind a grant of
// the whole name are loose: PostgreSQL dismisses them at once, the other engines at the next
// hand-over.
func (s *scene) served() (is result, loose []string) {
	walk := queue.Walk{State: s.state()}
	for _, p := range s.holders {
		if p.units == 0 {
			is.whole = p.attempt
		} else {
			is.shares = append(is.shares, p.attempt)
		}
	}
	behind := false
	for _, p := range s.waiters {
		verdict := walk.Meet(queue.Waiter{Units: p.units, Of: p.of, Dead: p.dead})
		switch {
		case verdict == queue.Granted && p.units == 0:
			is.whole, behind = p.attempt, true
		case verdict == queue.Granted:
			is.shares = append(is.shares, p.attempt)
		case verdict == queue.Waits && behind && p.dead:
			loose = append(loose, p.attempt)
		case verdict == queue.Waits:
			is.waiting, behind = append(is.waiting, p.attempt), false
		}
		if verdict == queue.Granted {
			is.granted = append(is.granted, p.attempt)
		}
	}
	if is.used = walk.Used; is.used > 0 {
		is.of = walk.Capacity
	}
	return is, loose
}

// state is what the rules go by.
func (s *scene) state() queue.State {
	is := queue.State{Resting: s.rests, Waiters: len(s.waiters)}
	for _, p := range s.holders {
		if p.units == 0 {
			is.Held = true
		} else {
			is = is.With(p.units, p.of)
		}
	}
	return is
}

// found is what the tables say of a name, without the loose, and after a check that its row counts
// what is there.
func (e *env) found(t *testing.T, name string, loose []string) (is result) {
	t.Helper()
	is.whole = e.text(t, "SELECT attempt FROM dblock_locks WHERE name = ? AND session_id IS NOT NULL", name)
	is.shares = e.attempts(t, "SELECT attempt FROM dblock_shares WHERE name = ? ORDER BY token", name)
	is.used = int(e.number(t, "SELECT shared_units FROM dblock_locks WHERE name = ?", name))
	units := e.number(t, "SELECT sum(units) FROM dblock_shares WHERE name = ?", name)
	is.waiting = e.attempts(t, "SELECT attempt FROM dblock_waiters WHERE name = ? ORDER BY ticket", name)
	waiters := e.number(t, "SELECT waiters FROM dblock_locks WHERE name = ?", name)
	if is.used != int(units) || waiters != int64(len(is.waiting)) {
		t.Errorf("%s counts %d units and %d waiters: %d units are shared, %v wait", name, is.used, waiters, units, is.waiting)
	}
	is.waiting = slices.DeleteFunc(is.waiting, func(attempt string) bool { return slices.Contains(loose, attempt) })
	return is
}

// capacity is what is seen of a name, which need not stand in its row.
func capacity(t *testing.T, b driver.Backend, name string) int {
	t.Helper()
	states, err := b.Look(t.Context(), "", []string{name})
	if err != nil || len(states) != 1 {
		t.Fatalf("a look at %s: %v, %v", name, states, err)
	}
	return states[0].Capacity
}

// attempts reads a column.
func (e *env) attempts(t *testing.T, query, name string) (list []string) {
	t.Helper()
	e.through(t, false, func() {
		rows, err := e.look.QueryContext(t.Context(), e.sql(query), name)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var attempt string
			if err := rows.Scan(&attempt); err != nil {
				t.Fatal(err)
			}
			list = append(list, attempt)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
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
