package deadlock

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// world builds a list of waits.
type world struct {
	waits []driver.Wait
	clock time.Time
}

func (w *world) add(owner, name string, holds bool, units, capacity, need int) *world {
	w.clock = w.clock.Add(time.Second)
	w.waits = append(w.waits, driver.Wait{
		Name: name, Session: "s" + owner, Host: "h", Thread: owner, Attempt: fmt.Sprintf("%s/%s/%v", owner, name,
			holds),
		Holds: holds, Units: units, Capacity: capacity, Need: need, Since: w.clock,
	})
	return w
}

// path gives the latest attempt a path.
func (w *world) path(path string) *world {
	last := &w.waits[len(w.waits)-1]
	last.Attempt += separator + path
	return w
}

func (w *world) has(owner, name string) *world   { return w.add(owner, name, true, 0, 0, 0) }
func (w *world) wants(owner, name string) *world { return w.add(owner, name, false, 0, 0, 0) }
func (w *world) reads(owner, name string) *world {
	return w.add(owner, name, true, 1, protocol.Readers, 0)
}
func (w *world) wantsToRead(owner, name string) *world {
	return w.add(owner, name, false, 1, protocol.Readers, 1)
}
func (w *world) permits(owner, name string, n, of int) *world {
	return w.add(owner, name, true, n, of, 0)
}
func (w *world) wantsPermits(owner, name string, n, of, need int) *world {
	return w.add(owner, name, false, n, of, need)
}

func TestTheYoungestWaiterOfACycleGivesUp(t *testing.T) {
	for _, c := range []struct {
		about  string
		world  *world
		victim string // its attempt; "": none
	}{
		{"one waiter", new(world).has("a", "x").wants("b", "x"), ""},
		{"two wait for each other: the younger", new(world).has("a", "x").has("b", "y").wants("a", "y").wants("b", "x"),
			"b/x/false"},
		{"the other way round", new(world).has("a", "x").has("b", "y").wants("b", "x").wants("a", "y"), "a/y/false"},
		{"three", new(world).has("a", "x").has("b", "y").has("c", "z").wants("b", "z").wants("c", "x").wants("a", "y"),
			"a/y/false"},
		{"a waiter behind a cycle is no part of it", new(world).has("a", "x").has("b", "y").wants("a", "y").wants("b",
			"x").wants("c", "x"), "b/x/false"},
		{"an owner in the cycle holds a name without waiters", new(world).has("a", "x").has("a", "w").has("b",
			"y").wants("a", "y").wants("b", "x"), "b/x/false"},
		{"a chain that ends", new(world).has("a", "x").has("b", "y").has("c", "z").wants("a", "y").wants("b", "z"), ""},
		{"two readers and a writer each", new(world).reads("a", "x").reads("b", "x").wants("a", "x").wants("b", "x"),
			"b/x/false"},
		{"a reader and a writer that wait for each other", new(world).reads("a", "x").has("b", "y").wants("b",
			"x").wantsToRead("a", "y"), "a/y/false"},
		{"a reader behind a writer that waits for another reader", new(world).reads("a", "x").wants("b",
			"x").wantsToRead("c", "x"), ""},
		{"a semaphore with a holder that does not wait", new(world).permits("a", "s", 1, 2).permits("c", "s", 1,
			2).has("b", "y").wants("a", "y").wantsPermits("b", "s", 1, 2, 1), ""},
		{"a semaphore with holders that all wait", new(world).permits("a", "s", 1, 2).permits("c", "s", 1, 2).has("b",
			"y").wants("a", "y").wants("c", "y").wantsPermits("b", "s", 1, 2, 1), "b/s/false"},
		{"there would be room but for a larger request before it", new(world).permits("a", "s", 1, 3).has("b",
			"y").wantsPermits("d", "s", 3, 3, 3).wants("a", "y").wantsPermits("b", "s", 1, 3, 3), "b/s/false"},
		{"there is room", new(world).permits("a", "s", 1, 3).has("b", "y").wants("a", "y").wantsPermits("b", "s", 1, 3,
			1), ""},
		{"a semaphore whose size is stated smaller by a holder that does not wait", new(world).permits("a", "s", 2,
			4).permits("c", "s", 1, 3).has("b", "y").wants("a", "y").wantsPermits("b", "s", 2, 4, 2), ""},
		{"by one that waits", new(world).permits("a", "s", 2, 3).has("b", "y").wants("a", "y").wantsPermits("b", "s", 2,
			4, 2), "b/s/false"},
		{"by the waiter itself", new(world).permits("a", "s", 2, 4).has("b", "y").wants("a", "y").wantsPermits("b", "s",
			1, 2, 1), "b/s/false"},
		{"an owner does not block itself: another of its goroutines may hold the permits", new(world).permits("a", "s",
			3, 5).wantsPermits("a", "s", 3, 5, 3), ""},
		{"one goroutine of an owner waits, and another has what is waited for", new(world).has("a", "x").has("a",
			"z").path("001").has("b", "y").wants("a", "y").path("002").wants("b", "z"), ""},
		{"they are both under what is waited for", new(world).has("a", "x").has("a", "z").path("001").has("b",
			"y").wants("a", "y").path("002").wants("b", "x"), "b/x/false"},
		{"what is waited for was asked for first", new(world).has("a", "x").has("a", "z").path("001").has("b",
			"y").wants("b", "z").wants("a", "y").path("001002"), "a/y/false.001002"},
		{"likewise, from its context's context", new(world).has("a", "z").path("001").has("b", "y").wants("b",
			"z").wants("a", "y").path("001002003"), "a/y/false.001002003"},
		{"it was asked for under what waits", new(world).has("a", "z").path("001002").has("b", "y").wants("a",
			"y").path("001").wants("b", "z"), ""},
		{"two goroutines of each owner, crosswise", new(world).has("a", "x").path("001").has("b",
			"y").path("003").wants("a", "y").path("002").wants("b", "x").path("004"), ""},
		{"two goroutines of an owner in two cycles: one waiter of each", new(world).has("a", "x").has("b", "y").has("c",
			"z").wants("a", "y").path("001").wants("a", "z").path("002").wants("c", "w").has("d", "w").wants("b", "x"),
			"b/x/false"},
		{"two cycles through one owner: one waiter gives up at first", new(world).has("a", "x").has("b", "y").reads("c",
			"z").reads("b", "z").wants("b", "x").wants("c", "x").wants("a", "z"), "a/z/false"},
	} {
		t.Run(c.about, func(t *testing.T) {
			var attempts []string
			for _, w := range c.world.waits {
				if !w.Holds {
					attempts = append(attempts, w.Attempt)
				}
			}
			found, _ := Find(c.world.waits, attempts)
			if c.victim == "" && len(found) > 0 || c.victim != "" && (len(found) != 1 || found[c.victim] == nil) {
				t.Errorf("%v give up, want %q", found, c.victim)
			}
		})
	}
}

func TestACycleBeginsWithTheWaiterThatGivesUp(t *testing.T) {
	w := new(world).has("a", "x").has("b", "y").has("c", "z").wants("b", "z").wants("c", "x").wants("a", "y")
	found, _ := Find(w.waits, []string{"a/y/false"})
	got := found["a/y/false"]
	want := Cycle{{"h", "a", "y", 0, "h", "b"}, {"h", "b", "z", 0, "h", "c"}, {"h", "c", "x", 0, "h", "a"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A ring of n owners, each waiting for the next, is the classical case.
func TestRings(t *testing.T) {
	for n := 2; n <= 20; n++ {
		w := &world{}
		for i := range n {
			w.has(fmt.Sprint(i), fmt.Sprint("n", i))
		}
		var attempts []string
		for i := range n {
			w.wants(fmt.Sprint(i), fmt.Sprint("n", (i+1)%n))
			attempts = append(attempts, w.waits[len(w.waits)-1].Attempt)
		}
		found, stuck := Find(w.waits, attempts)
		if len(stuck) != n-1 || len(found) != 1 || len(found[attempts[n-1]]) != n {
			t.Errorf("ring of %d: %v", n, found)
		}
		for i, mine := range attempts[:n-1] { // a check of one attempt alone says the same
			if found, _ := Find(w.waits, []string{mine}); len(found) > 0 {
				t.Errorf("ring of %d: %d gives up as well", n, i)
			}
		}
	}
}

func TestOneWaiterOfEachSeparateCycleGivesUp(t *testing.T) {
	w := new(world).has("a", "x").has("b", "y").has("c", "z").has("d", "w").wants("a", "y").wants("b", "x").wants("c",
		"w").wants("d", "z")
	found, _ := Find(w.waits, []string{"a/y/false", "b/x/false", "c/w/false", "d/z/false"})
	if len(found) != 2 || found["b/x/false"] == nil || found["d/z/false"] == nil {
		t.Errorf("%v", found)
	}
}

// A check of each of these waiters by itself took seconds.
func BenchmarkManyBehindACycle(b *testing.B) {
	w := new(world).has("a", "x").has("b", "y").wants("a", "y").wants("b", "x")
	var attempts []string
	for i := range 1000 {
		w.wants(fmt.Sprint("c", i), "x")
		attempts = append(attempts, w.waits[len(w.waits)-1].Attempt)
	}
	for b.Loop() {
		if found, stuck := Find(w.waits, attempts); len(found) > 0 || len(stuck) != 1000 {
			b.Fatalf("%d give up, %d are stuck", len(found), len(stuck))
		}
	}
}

func TestPathsTellWhatWasAskedForUnderWhat(t *testing.T) {
	for _, number := range []int64{0, letters - 1, letters, 46_656, 1 << 30, math.MaxInt64 - 100} {
		var attempts []string
		for path, apart := "", true; apart; number++ {
			attempts = append(attempts, NewAttempt(path))
			sibling := NewAttempt(Below(path, number))
			number++
			apart = Below(path, number) != path
			path = Below(path, number)
			attempt := NewAttempt(path)
			if under(attempt, sibling) == apart || under(sibling, attempt) == apart {
				t.Errorf("%q and %q are beside each other", attempt, sibling)
			}
			for _, above := range attempts {
				if len(attempt) > 32 || !under(attempt, above) || PathOf(attempt) != path {
					t.Errorf("%q is under %q", attempt, above)
				}
			}
			if apart && under(attempts[len(attempts)-1], attempt) {
				t.Errorf("%q is not under %q", attempts[len(attempts)-1], attempt)
			}
		}
		if len(attempts) < 2 {
			t.Errorf("%d: no level below the first lock", number)
		}
	}
}

// Broken by a number that begins anew after three digits.
func TestNoPathComesAgain(t *testing.T) {
	var paths []string
	for number := range int64(letters * letters * letters * 3) {
		paths = append(paths, Below("A", number))
	}
	slices.Sort(paths)
	for i, path := range paths[1:] {
		if Under(path, paths[i]) {
			t.Fatalf("%q is under %q", path, paths[i])
		}
	}
}
