package clusters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

// grant is a hold, and what its client believed. Times are since the run began.
type grant struct {
	name   string
	client int
	token  int64
	asked  time.Duration
	from   time.Duration // Lock returned
	live   time.Duration // its context was seen alive
}

// refusal is a Lock or Unlock that failed.
type refusal struct {
	call     string
	direct   bool // of a client with nothing in between that would notice a server that is stopped
	from, to time.Duration
	err      error
}

// span is a time in which no write succeeded.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return s.to - s.from }

// history is what a run has seen.
type history struct {
	mu       sync.Mutex
	grants   []grant
	refusals []refusal
	answers  []time.Duration // when a write of the probe succeeded
	faults   []span          // from when a fault began until the cluster was healthy again
	written  map[write]answer
}

// write is one increment: with the token of its hold, of a counter that was n before.
type write struct {
	name  string
	token int64
	n     int64
}

// answer is what a client heard of the commit of an increment.
type answer struct {
	confirmed bool // false: nobody knows
	at        time.Duration
	way       string // of the client
}

// note changes the history.
func (h *history) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// overlaps are the times in which two believed in one name.
func overlaps(grants []grant) (both []span) {
	byName := map[string][]grant{}
	for _, g := range grants {
		byName[g.name] = append(byName[g.name], g)
	}
	for _, of := range byName {
		slices.SortFunc(of, func(a, b grant) int { return cmp.Compare(a.from, b.from) })
		var believed span // by the one of those before who believed for longest
		for _, g := range of {
			if s := (span{g.from, min(believed.to, g.live)}); s.length() > 0 {
				both = append(both, s)
			}
			believed.to = max(believed.to, g.live)
		}
	}
	return both
}

// fallen are the grants whose token is not higher than that of every grant of the name before it.
func fallen(grants []grant) (fell []grant) {
	byName := map[string][]grant{}
	for _, g := range grants {
		byName[g.name] = append(byName[g.name], g)
	}
	for _, of := range byName {
		slices.SortFunc(of, func(a, b grant) int { return cmp.Compare(a.from, b.from) })
		highest := int64(0)
		for _, g := range of {
			if g.token <= highest {
				fell = append(fell, g)
			}
			highest = max(highest, g.token)
		}
	}
	return fell
}

// outages are the gaps between the probe's answers that are longer than least.
func outages(answers []time.Duration, least time.Duration) (out []span) {
	for i := 1; i < len(answers); i++ {
		if s := (span{answers[i-1], answers[i]}); s.length() > least {
			out = append(out, s)
		}
	}
	return out
}

// added is how long after an outage the first lock was granted.
func added(out span, grants []grant) time.Duration {
	first := time.Duration(-1)
	for _, g := range grants {
		if g.from > out.from+out.length()/2 && (first < 0 || g.from < first) {
			first = g.from
		}
	}
	if first < 0 {
		return time.Hour
	}
	return max(0, first-out.to)
}

// early are the refusals during which the cluster was never away for as long as a TTL. To a client
// that is connected to a node directly, that is away until it is back.
func early(refusals []refusal, out, faults []span, ttl time.Duration) (bad []refusal) {
	for _, r := range refusals {
		excuses := out
		if r.direct {
			excuses = slices.Concat(out, faults)
		}
		if !slices.ContainsFunc(excuses, func(s span) bool {
			return s.from < r.to && r.from < s.to && s.length() >= ttl
		}) {
			bad = append(bad, r)
		}
	}
	return bad
}

// books compares the increments that the database has with those that were confirmed: twice is how
// many counted from the same number as another, which two holders do, or one that read an old
// value; fell is how many have no higher token than the one before; lost is how many were confirmed
// and are not there.
func books(there []write, known map[write]answer) (twice, fell int, lost []answer) {
	there = slices.Clone(there)
	slices.SortFunc(there, func(a, b write) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.n, b.n), cmp.Compare(a.token, b.token))
	})
	have := map[write]bool{}
	for i, w := range there {
		have[w] = true
		if i == 0 || there[i-1].name != w.name {
			continue
		}
		if before := there[i-1]; before.n == w.n {
			twice++
		} else if before.token >= w.token {
			fell++
		}
	}
	for w, a := range known {
		if a.confirmed && !have[w] {
			lost = append(lost, a)
		}
	}
	return twice, fell, lost
}

// told says how many answers each way of clients had, and from when to when.
func told(answers []answer) string {
	byWay := map[string]span{}
	counts := map[string]int{}
	for _, a := range answers {
		s, seen := byWay[a.way]
		if !seen {
			s = span{a.at, a.at}
		}
		byWay[a.way] = span{min(s.from, a.at), max(s.to, a.at)}
		counts[a.way]++
	}
	var parts []string
	for _, way := range slices.Sorted(maps.Keys(byWay)) {
		parts = append(parts, fmt.Sprintf("%s %d from %.1f to %.1f s", way, counts[way], byWay[way].from.Seconds(),
			byWay[way].to.Seconds()))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func TestTheJudgeSeesASecondHolder(t *testing.T) {
	sound := []grant{
		{name: "a", token: 1, from: 1, live: 5}, {name: "a", token: 2, from: 5, live: 9}, {name: "b", token: 1, from: 2,
			live: 20},
		{name: "a", token: 3, from: 9, live: 9}, {name: "a", token: 4, from: 12, live: 30},
	}
	if both := overlaps(sound); len(both) != 0 {
		t.Errorf("%v", both)
	}
	if fell := fallen(sound); len(fell) != 0 {
		t.Errorf("%v", fell)
	}
	for want, g := range map[string]grant{
		"[{8 9}]":   {name: "a", token: 5, from: 8, live: 11},
		"[{25 28}]": {name: "a", token: 5, from: 25, live: 28},
		"[{15 20}]": {name: "b", token: 5, from: 15, live: 28},
	} {
		if both := overlaps(append(slices.Clone(sound), g)); fmt.Sprint(both) != want {
			t.Errorf("%v, want %s", both, want)
		}
	}
	if fell := fallen(append(slices.Clone(sound), grant{name: "a", token: 4, from: 40})); len(fell) != 1 {
		t.Errorf("%v", fell)
	}
}

func TestTheJudgeSeesWhatAnOutageExcuses(t *testing.T) {
	out := outages([]time.Duration{0, 1, 2, 12, 13, 43}, 5)
	assert.Equal(t, fmt.Sprint(out), "[{2 12} {13 43}]", out)
	bad := early([]refusal{
		{call: "short", from: 3, to: 6}, {call: "long", from: 12, to: 14}, {call: "none", from: 50, to: 60},
		{call: "stopped", direct: true, from: 3, to: 6}, {call: "behind a door", from: 4, to: 6},
	}, out, []span{{2, 40}}, 20)
	if len(bad) != 3 || bad[0].call != "short" || bad[1].call != "none" || bad[2].call != "behind a door" {
		t.Errorf("%v", bad)
	}
	grants := []grant{{from: 1}, {from: 3}, {from: 15}, {from: 43}}
	if a, b := added(out[0], grants), added(out[1], grants); a != 3 || b != 0 {
		t.Errorf("%d, %d", a, b)
	}
}

func TestTheJudgeReadsTheBooks(t *testing.T) {
	there := []write{{"a", 5, 0}, {"a", 6, 1}, {"a", 9, 2}, {"b", 1, 0}}
	sure := answer{confirmed: true}
	known := map[write]answer{{"a", 5, 0}: sure, {"a", 6, 1}: sure, {"a", 7, 2}: {}}
	for _, c := range []struct {
		more              []write
		lacks             map[write]answer
		twice, fell, lost int
	}{
		{nil, nil, 0, 0, 0},
		{[]write{{"a", 10, 2}}, nil, 1, 0, 0},
		{[]write{{"a", 8, 3}}, nil, 0, 1, 0},
		{nil, map[write]answer{{"a", 8, 3}: sure}, 0, 0, 1},
	} {
		all := maps.Clone(known)
		maps.Copy(all, c.lacks)
		twice, fell, lost := books(append(slices.Clone(there), c.more...), all)
		if twice != c.twice || fell != c.fell || len(lost) != c.lost {
			t.Errorf("%v: %d twice, %d fell, %d lost", c, twice, fell, len(lost))
		}
	}
}
