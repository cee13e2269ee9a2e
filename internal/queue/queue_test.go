package queue

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/driver"
)

// run takes a whole queue through a walk.
func run(s State, waiters []Waiter) (verdicts []Verdict, after State) {
	walk := Walk{State: s}
	for _, w := range waiters {
		verdicts = append(verdicts, walk.Meet(w))
	}
	return verdicts, walk.State
}

const (
	w = Waits
	g = Granted
	d = Dismissed
)

var (
	whole  = Waiter{}
	reader = Waiter{Units: 1, Of: driver.Readers}
	dead   = Waiter{Dead: true}
)

func permits(n, of int) Waiter { return Waiter{Units: n, Of: of} }

func TestTheWalkServesInOrderAndEndsAtTheFirstThatDoesNotFit(t *testing.T) {
	for _, test := range []struct {
		says    string
		state   State
		waiters []Waiter
		want    []Verdict
		used    int
	}{
		{"a free name goes to the first alone", State{}, []Waiter{whole, whole}, []Verdict{g, w}, 0},
		{"a held name goes to nobody", State{Held: true}, []Waiter{dead, whole}, []Verdict{w, w}, 0},
		{"a name that rests goes to nobody", State{Resting: true}, []Waiter{dead, whole}, []Verdict{w, w}, 0},
		{"neighbouring readers enter together", State{Capacity: driver.Readers}, []Waiter{reader, reader, whole, reader}, []Verdict{g, g, w, w}, 2},
		{"a writer holds back the readers behind it", State{Used: 1, Capacity: driver.Readers}, []Waiter{whole, reader}, []Verdict{w, w}, 1},
		{"nothing fits beside the whole name", State{Capacity: driver.Readers}, []Waiter{whole, reader}, []Verdict{g, w}, 0},
		{"permits are given while they last", State{Used: 1, Capacity: 4}, []Waiter{permits(2, 4), permits(1, 4), permits(1, 4)}, []Verdict{g, g, w}, 4},
		{"a waiter that states more finds the room that the holders leave", State{Used: 2, Capacity: 4}, []Waiter{permits(2, 8), permits(1, 8)}, []Verdict{g, w}, 4},
		{"and where it is the first, more", State{Capacity: 4}, []Waiter{permits(5, 8), permits(3, 8)}, []Verdict{g, g}, 8},
		{"one that states less waits until so few are used", State{Used: 2, Capacity: 4}, []Waiter{permits(1, 2), permits(1, 4)}, []Verdict{w, w}, 2},
		{"and counts for those behind it", State{Used: 1, Capacity: 4}, []Waiter{permits(1, 2), permits(1, 4)}, []Verdict{g, w}, 2},
		{"small requests do not overtake a large one", State{Used: 2, Capacity: 4}, []Waiter{permits(3, 4), permits(1, 4)}, []Verdict{w, w}, 2},
		{"the dead make way", State{Used: 2, Capacity: 4}, []Waiter{dead, {3, 4, true}, permits(2, 4), dead, permits(1, 4), dead}, []Verdict{d, d, g, d, w, w}, 4},
		{"the dead behind the whole name wait for the next walk", State{}, []Waiter{dead, whole, dead}, []Verdict{d, g, w}, 0},
		{"the last reader there can be", State{Used: driver.Readers - 1, Capacity: driver.Readers}, []Waiter{reader, reader}, []Verdict{g, w}, driver.Readers},
		{"as many units as can be counted", State{Used: math.MaxInt, Capacity: math.MaxInt}, []Waiter{permits(math.MaxInt, math.MaxInt)}, []Verdict{w}, math.MaxInt},
	} {
		t.Run(test.says, func(t *testing.T) {
			test.state.Waiters = len(test.waiters)
			verdicts, after := run(test.state, test.waiters)
			if !slices.Equal(verdicts, test.want) || after.Used != test.used {
				t.Errorf("verdicts %v with %d units used: want %v with %d", verdicts, after.Used, test.want, test.used)
			}
			waiting := len(slices.DeleteFunc(verdicts, func(v Verdict) bool { return v != Waits }))
			if after.Waiters != waiting {
				t.Errorf("%d waiters counted afterwards: want %d", after.Waiters, waiting)
			}
		})
	}
}

func TestAWalkGoesOnWhileSomethingCanBeGranted(t *testing.T) {
	for _, test := range []struct {
		says  string
		state State
		meets []Waiter
		goes  bool
	}{
		{"with waiters", State{Waiters: 1}, nil, true},
		{"without", State{}, nil, false},
		{"held", State{Waiters: 1, Held: true}, nil, false},
		{"resting", State{Waiters: 1, Resting: true}, nil, false},
		{"after a share", State{Waiters: 2, Capacity: 2}, []Waiter{permits(1, 2)}, true},
		{"after the dead", State{Waiters: 2}, []Waiter{dead}, true},
		{"after the whole name", State{Waiters: 2}, []Waiter{whole}, false},
		{"after one that does not fit", State{Waiters: 2, Used: 1, Capacity: 2}, []Waiter{whole}, false},
		{"after the last", State{Waiters: 1}, []Waiter{dead}, false},
		{"after more than were counted", State{Waiters: 1, Capacity: 2}, []Waiter{dead, permits(1, 2)}, false},
	} {
		t.Run(test.says, func(t *testing.T) {
			walk := Walk{State: test.state}
			for _, w := range test.meets {
				walk.Meet(w)
			}
			if walk.Goes() != test.goes {
				t.Errorf("it goes on: %v, want %v", walk.Goes(), test.goes)
			}
		})
	}
}

func TestARequestJoinsWithItsCapacityOrCollides(t *testing.T) {
	for _, test := range []struct {
		says     string
		state    State
		units    int
		of       int
		capacity int
		collides bool
		free     bool
	}{
		{"the first says how many units there are", State{}, 2, 3, 3, false, true},
		{"a capacity of earlier requests does not count", State{Capacity: 5}, 2, 3, 3, false, true},
		{"nor for a request for the whole name", State{Capacity: 5}, 0, 0, 0, false, true},
		{"the others count the same", State{Used: 1, Capacity: 3}, 2, 3, 3, false, true},
		{"and find no room", State{Used: 2, Capacity: 3}, 2, 3, 3, false, false},
		{"or a greater number of units", State{Used: 1, Capacity: 3}, 2, 4, 3, false, true},
		{"of which they leave fewer", State{Used: 1, Capacity: 3}, 3, 4, 3, false, false},
		{"or a smaller number", State{Used: 1, Capacity: 3}, 1, 2, 3, false, true},
		{"of which they leave none", State{Used: 2, Capacity: 3}, 1, 2, 3, false, false},
		{"readers collide with permits", State{Used: 1, Capacity: 3}, 1, driver.Readers, 3, true, false},
		{"and permits with readers", State{Used: 1, Capacity: driver.Readers}, 1, 4, driver.Readers, true, false},
		{"also with those who wait", State{Waiters: 1, Capacity: driver.Readers}, 1, 4, driver.Readers, true, false},
		{"of which others may state another number", State{Waiters: 1, Capacity: 3}, 1, 4, 3, false, false},
		{"where only the whole name is waited for nobody has said", State{Waiters: 1}, 1, 4, 4, false, false},
		{"the whole name collides with nothing, and is not free", State{Used: 1, Capacity: 3}, 0, 0, 3, false, false},
		{"a held name is not free", State{Held: true, Capacity: 5}, 1, 4, 4, false, false},
		{"nor is one that rests", State{Resting: true}, 1, 4, 4, false, false},
		{"nor is one with waiters", State{Waiters: 1, Capacity: 4}, 1, 4, 4, false, false},
		{"more units than there are never fit", State{}, 4, 3, 3, false, false},
	} {
		t.Run(test.says, func(t *testing.T) {
			r := driver.Request{Units: test.units, Of: test.of}
			capacity, collides := test.state.Join(r)
			if free := test.state.Free(r); capacity != test.capacity || collides != test.collides || free != test.free {
				t.Errorf("capacity %d, collides %v, free %v", capacity, collides, free)
			}
		})
	}
}

func TestAStateThatWasLookedAt(t *testing.T) {
	somebody := driver.Holder{Session: "s"}
	for _, test := range []struct {
		says string
		look driver.State
		want State
	}{
		{"free", driver.State{}, State{}},
		{"held", driver.State{Holder: somebody, Waiters: 2}, State{Held: true, Waiters: 2}},
		{"shared", driver.State{Holder: somebody, Sharing: 1, Used: 2, Capacity: 3}, State{Used: 2, Capacity: 3}},
		{"resting", driver.State{Rest: 1}, State{Resting: true}},
	} {
		if is := Of(test.look); is != test.want {
			t.Errorf("%s: %+v, want %+v", test.says, is, test.want)
		}
	}
}

// FuzzWalk reads a state and a queue from its input, one byte for each waiter.
func FuzzWalk(f *testing.F) {
	f.Add(false, false, 0, 3, []byte{1, 2, 0x80, 0, 1})
	f.Add(false, false, 1, 3, []byte{0x11, 0x31, 0x12})
	f.Add(true, false, 0, 3, []byte{0, 0x81})
	f.Add(false, true, 1, 3, []byte{1})
	f.Add(false, false, 0, driver.Readers, []byte{1, 1, 0, 1})
	f.Add(false, false, math.MaxInt-1, math.MaxInt, []byte{1, 1})
	f.Fuzz(func(t *testing.T, held, resting bool, used, capacity int, queue []byte) {
		if used < 0 || capacity < used || held && used > 0 {
			t.Skip("no such name")
		}
		before := State{Held: held, Resting: resting, Used: used, Capacity: capacity, Waiters: len(queue)}
		waiters := make([]Waiter, len(queue))
		for i, b := range queue {
			units := int(b & 0xf)
			waiters[i] = Waiter{Units: units, Of: units + int(b>>4&0x7), Dead: b&0x80 != 0}
		}
		verdicts, after := run(before, waiters)
		check(t, before, after, waiters, verdicts)

		// An engine stops to read when nothing more can be granted: that must change nothing for
		// the living.
		walk := Walk{State: before}
		for i, w := range waiters {
			if !walk.Goes() {
				if at := slices.Index(verdicts[i:], Granted); at >= 0 {
					t.Fatalf("the walk would not go on at %d, and %d is granted", i, i+at)
				}
				break
			}
			walk.Meet(w)
		}
	})
}

// check holds a walk against the rules, without the code that made it.
func check(t *testing.T, before, after State, waiters []Waiter, verdicts []Verdict) {
	t.Helper()
	units, wholes, grants, waiting, ended := before.Used, 0, 0, 0, -1
	capacity, stated := before.Capacity, map[int]bool{}
	if before.Used > 0 {
		stated[capacity] = true
	}
	for i, w := range waiters {
		switch v := verdicts[i]; {
		case v == Waits:
			waiting++
			if ended < 0 {
				ended = i
			}
		case ended >= 0:
			t.Fatalf("%d gets verdict %d behind %d, which waits", i, v, ended)
		case v == Dismissed && !w.Dead:
			t.Fatalf("%d lives, and is dismissed", i)
		case v == Granted && w.Dead:
			t.Fatalf("%d is dead, and gets the name", i)
		case v == Granted:
			grants++
			units += w.Units
			if w.Units == 0 {
				wholes++
				continue
			}
			stated[w.Of] = true
			if capacity = w.Of; units > w.Units {
				capacity = slices.Min(slices.Collect(maps.Keys(stated)))
			}
			if units > capacity {
				t.Fatalf("%d gets %d units, and of %d, which the holders state, %d are used", i, w.Units, capacity, units)
			}
		}
	}
	if wholes > 0 && (grants > 1 || before.Used > 0) || (before.Held || before.Resting) && grants > 0 {
		t.Fatalf("%d grants, %d of the whole name, in %+v", grants, wholes, before)
	}
	mixed := before.Mixed && before.Used > 0 || len(stated) > 1
	if want := (State{before.Held || wholes > 0, before.Resting, units, capacity, mixed, waiting}); after != want {
		t.Fatalf("afterwards %+v: want %+v", after, want)
	}
	if before.Held || before.Resting || wholes > 0 || ended < 0 {
		return
	}
	w := waiters[ended]
	room := w.Of
	if units > 0 {
		room = min(capacity, w.Of) - units
	}
	if w.Dead || w.Units > 0 && w.Units <= room || w.Units == 0 && units == 0 {
		t.Fatalf("the walk ended at %d (%+v), which is dead or fits: %d units are used", ended, w, units)
	}
}
