package protocol_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// TestEverySequenceOfSmallWorlds takes every step in every state of some small worlds, breadth
// first, so that the sequence that breaks a rule is a shortest one. With DBLOCK_TEST_STEPS each
// world has one request more, which makes it ten times as large.
func TestEverySequenceOfSmallWorlds(t *testing.T) {
	for says, all := range map[string][]protocol.Request{
		"whole names":         {request("a"), request("b"), request("b1"), request("a1")},
		"readers and writers": {request("a", reads), request("b"), request("b1", reads), request("a1", reads)},
		"readers":             {request("a"), request("a1", reads), request("b", reads), request("b1", reads)},
		"permits": {request("a", permits(1, 3)), request("b", permits(1, 4)), request("a1", permits(1, 9)),
			request("b1", permits(2, 9))},
		"cohorts": {request("a", members(2)), request("b", members(2)), request("a1", reads),
			request("b1")},
		"growing":    {request("b"), request("a"), request("a1", members(2)), request("b1")},
		"leases":     {request("a", leased), request("b", reads, leased), request("b1")},
		"rests":      {request("a", rests), request("b", reads), request("b1", rests)},
		"collisions": {request("a", reads), request("b", permits(1, 2)), request("b1"), request("a1")},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			if os.Getenv("DBLOCK_TEST_STEPS") == "" {
				all = all[:len(all)-1]
			}
			explore(t, all)
		})
	}
}

// state is a world that was reached.
type state struct {
	world
	from int // the index of the state before
	says string
	did
}

// explore reports the first sequence that breaks a rule.
func explore(t *testing.T, requests []protocol.Request) {
	states := []state{{world: newWorld()}}
	seen, taken := map[string]bool{states[0].key(): true}, 0
	for i := 0; i < len(states); i++ {
		w := states[i].world
		for _, s := range w.steps(requests) {
			after, d, err := w.take(s)
			taken++
			if err == nil {
				err = inOneGo(states, i, d, after)
			}
			if err != nil {
				path := []string{s.says}
				for at := i; at > 0; at = states[at].from {
					path = append(path, states[at].says)
				}
				slices.Reverse(path)
				t.Fatalf("%v\n%s\nbefore %+v\n%+v\n%+v\nafter %+v\n%+v\n%+v", err, strings.Join(path, "\n"), w.row,
					w.places, w.shares, after.row, after.places, after.shares)
			}
			if key := after.key(); !seen[key] {
				seen[key] = true
				states = append(states, state{after, i, s.says, d})
			}
		}
	}
	t.Logf("%d states, %d steps", len(states), taken)
}

// key is the same for two worlds from which the same can come. Of tokens and tickets only the order
// counts, apart from the width of a cohort.
func (w *world) key() string {
	r, b := w.row, make([]byte, 0, 128)
	var tokens []int64
	for _, h := range w.holds() {
		tokens = append(tokens, h.last)
	}
	slices.Sort(tokens)
	rank := func(token int64) byte { return byte('0' + slices.Index(tokens, token)) }
	raised := r.Token >= began+40
	if r.Session != "" {
		b = append(b, r.Attempt...)
		b = append(b, r.Thread...)
		b = append(b, byte('0'+r.Last-r.First))
		b = strconv.AppendInt(b, r.Ends, 10)
	}
	if r.Units > 0 || r.Waiters > 0 {
		b = strconv.AppendInt(append(b, '/'), int64(r.Capacity), 10)
	}
	b = strconv.AppendBool(b, raised)
	b = strconv.AppendBool(b, w.overdue)
	b = append(b, byte('0'+w.kind), byte('0'+w.now-began))
	if ahead := r.Rests - w.now; ahead > 0 {
		b = strconv.AppendInt(append(b, 'r'), ahead, 10)
	}
	for _, of := range []string{w.over, w.dead, w.used} {
		letters := strings.Split(of, ".")
		slices.Sort(letters)
		b = append(append(b, '.'), strings.Join(letters, "")...)
	}
	for _, p := range w.places {
		b = append(append(append(b, ' '), p.Attempt...), byte('0'+count(p.Request)))
	}
	for _, s := range w.shares {
		b = append(append(b, ' ', rank(s.Token)), s.Attempt...)
		b = strconv.AppendInt(append(b, ':'), s.Ends, 10)
	}
	return string(b)
}
