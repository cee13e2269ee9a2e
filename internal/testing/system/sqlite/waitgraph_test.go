package sqlite_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
)

// waits are the rows of who waits for whom, in words.
func (f *fixture) waits(attempts ...string) (rows []string) {
	f.t.Helper()
	waits, err := f.WaitGraph(f.t.Context(), attempts)
	if err != nil {
		f.t.Fatal(err)
	}
	slices.SortFunc(waits, func(a, b driver.Wait) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(fmt.Sprint(a.Holds), fmt.Sprint(b.Holds)), cmp.Compare(a.Thread, b.Thread))
	})
	for _, w := range waits {
		what := fmt.Sprintf("needs %d", w.Need)
		if w.Holds {
			what = "holds"
		}
		rows = append(rows, fmt.Sprintf("%s %s %s %d/%d", w.Thread, what, w.Name, w.Units, w.Capacity))
		if w.Since.UnixMicro() < 1e15 || w.Attempt == "" || w.Session == "" || w.Host != "h" {
			f.t.Errorf("%+v", w)
		}
	}
	return rows
}

// by is a request of a thread of a session's.
func by(r driver.Request, thread string) driver.Request {
	r.Thread = thread
	return r
}

func TestWaitsGoFromPlacesToHoldersAndOn(t *testing.T) {
	f := newFixture(t)
	s, z := f.session(), f.session()
	// x has a and waits for b, which y and a reader have; y waits for a, behind one who wants less.
	f.share(by(shared("b", s, 1, driver.Readers), "y"))
	f.share(by(shared("b", z, 1, driver.Readers), "reader"))
	f.share(by(shared("a", s, 3, 5), "x"))
	small, y := by(shared("a", z, 3, 5), "small"), by(shared("a", s, 5, 5), "y")
	f.queue(small)
	f.queue(y)
	x := by(request("b", s), "x")
	f.queue(x)
	f.take("c", z)
	f.enqueue("c", s) // none of their business
	want := []string{
		"small needs 3 a 3/5", "y needs 5 a 5/5", "x holds a 3/5",
		"x needs 0 b 0/0", "reader holds b 1/2147483647", "y holds b 1/2147483647",
	}
	if got := f.waits(x.Attempt, small.Attempt); !slices.Equal(got, want) {
		t.Fatalf("%q\nwant %q", got, want)
	}
	if got := f.waits(); got != nil {
		t.Fatalf("for no attempts: %q", got)
	}
	if got := f.waits("unknown"); got != nil {
		t.Fatalf("for one that is nowhere: %q", got)
	}
	// From y alone: the small one before it holds nothing, and is not in the way but by what it
	// wants.
	want = slices.Delete(slices.Clone(want), 0, 1)
	if got := f.waits(y.Attempt); !slices.Equal(got, want) {
		t.Fatalf("%q\nwant %q", got, want)
	}
	f.lapse(z)
	want = []string{"y needs 5 a 5/5", "x holds a 3/5", "x needs 0 b 0/0", "y holds b 1/2147483647"}
	if got := f.waits(x.Attempt, small.Attempt); !slices.Equal(got, want) {
		t.Fatalf("the dead are in the way: %q\nwant %q", got, want)
	}
}

func TestANeedIsThatOfAllBeforeIt(t *testing.T) {
	f := newFixture(t)
	s, dead := f.session(), f.session()
	f.share(by(shared("n", s, 5, 5), "holder"))
	var attempts []string
	for i, units := range []int{2, 1, 3, 0, 1} {
		r := by(shared("n", s, units, 5), fmt.Sprint(i))
		if units == 0 {
			r.Of = 0
		}
		if units == 3 {
			r.Session = dead
		}
		f.queue(r)
		attempts = append(attempts, r.Attempt)
	}
	want := []string{"0 needs 2 n 2/5", "1 needs 2 n 1/5", "2 needs 3 n 3/5", "3 needs 0 n 0/0", "4 needs 0 n 1/0", "holder holds n 5/5"}
	if got := f.waits(attempts...); !slices.Equal(got, want) {
		t.Fatalf("%q\nwant %q", got, want)
	}
	f.exec("UPDATE dblock_sessions SET dead = true WHERE id = ?", dead)
	f.exec("UPDATE dblock_waiters SET units = 1, capacity = 5 WHERE units = 0")
	want = []string{"0 needs 2 n 2/5", "1 needs 2 n 1/5", "3 needs 2 n 1/5", "4 needs 2 n 1/5", "holder holds n 5/5"}
	if got := f.waits(attempts...); !slices.Equal(got, want) {
		t.Fatalf("with one dead: %q\nwant %q", got, want)
	}
}

func TestARingOfWaitersIsSeenAsAWhole(t *testing.T) {
	f := newFixture(t)
	const ring = 20
	var last string
	sessions := make([]string, ring)
	for i := range ring {
		sessions[i] = f.session()
		f.take(fmt.Sprint(i), sessions[i])
	}
	for i := range ring {
		last = f.enqueue(fmt.Sprint((i+1)%ring), sessions[i])
	}
	if got := f.waits(last); len(got) != 2*ring {
		t.Fatalf("%d rows: %q", len(got), got)
	}
}
