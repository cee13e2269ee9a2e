package mysql_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// by is a request of a thread.
func by(r driver.Request, thread string) driver.Request {
	r.Thread = thread
	return r
}

// waits are the rows of who waits for whom, in words.
func (a actor) waits(t *testing.T, attempts ...string) (rows []string) {
	t.Helper()
	waits, err := a.WaitGraph(t.Context(), attempts)
	must(t, err)
	slices.SortFunc(waits, func(a, b driver.Wait) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(fmt.Sprint(a.Holds), fmt.Sprint(b.Holds)), cmp.Compare(a.Thread, b.Thread))
	})
	for _, w := range waits {
		what := fmt.Sprintf("needs %d", w.Need)
		if w.Holds {
			what = "holds"
		}
		if w.Capacity == driver.Readers {
			w.Capacity = -1
		}
		rows = append(rows, fmt.Sprintf("%s %s %s %d/%d", w.Thread, what, w.Name, w.Units, w.Capacity))
		if time.Since(w.Since).Abs() > time.Minute || w.Attempt == "" || w.Session == "" || w.Host != "h" {
			t.Errorf("%+v", w)
		}
	}
	return rows
}

func TestARingOfMixedKindsIsSeenFromEveryPlaceInIt(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		// 1 writes v, 2 reads w (as a bystander does), 3 has permits of x, 4 writes y, 5 reads z.
		a.share(t, by(a.request("v"), "1"))
		b.share(t, by(b.reader("w"), "2"))
		c.share(t, by(c.reader("w"), "bystander"))
		a.share(t, by(a.units("x", 2, 4), "3"))
		b.share(t, by(b.request("y"), "4"))
		a.share(t, by(a.reader("z"), "5"))
		ring := []string{
			a.wait(t, by(a.request("w"), "1")),
			b.wait(t, by(b.units("x", 3, 4), "2")),
			a.wait(t, by(a.reader("y"), "3")),
			b.wait(t, by(b.request("z"), "4")),
			a.wait(t, by(a.request("v"), "5")),
		}
		// Others: who waits behind, another thread of a session, one whose name differs by a space,
		// a name apart.
		outside := c.wait(t, by(c.reader("v"), "outside"))
		a.wait(t, by(a.request("w"), "1 "))
		a.wait(t, by(a.request("w"), "3 "))
		c.share(t, by(c.request("apart"), "apart"))
		a.wait(t, by(a.request("apart"), "apart"))
		want := []string{
			"5 needs 0 v 0/0", "1 holds v 0/0",
			"1 needs 0 w 0/0", "2 holds w 1/-1", "bystander holds w 1/-1",
			"2 needs 3 x 3/4", "3 holds x 2/4",
			"3 needs 1 y 1/-1", "4 holds y 0/0",
			"4 needs 0 z 0/0", "5 holds z 1/-1",
		}
		for i, attempt := range ring {
			if got := c.waits(t, attempt); !slices.Equal(got, want) {
				t.Fatalf("from %d: %q\nwant %q", i+1, got, want)
			}
		}
		if got := c.waits(t, ring...); !slices.Equal(got, want) {
			t.Fatalf("from all: %q\nwant %q", got, want)
		}
		if got := c.waits(t, outside); !slices.Equal(got, slices.Insert(slices.Clone(want), 1, "outside needs 0 v 1/0")) {
			t.Fatalf("from outside: %q", got)
		}
		for _, none := range [][]string{nil, {"nobody"}} {
			if got := c.waits(t, none...); got != nil {
				t.Fatalf("from %q: %q", none, got)
			}
		}
		s.expire(t, b)
		want = []string{"5 needs 0 v 0/0", "1 holds v 0/0", "1 needs 0 w 0/0", "bystander holds w 1/-1"}
		if got := c.waits(t, ring...); !slices.Equal(got, append(slices.Clone(want), "3 needs 1 y 1/-1")) && !slices.Equal(got, slices.Concat(want, []string{"3 needs 1 y 1/-1", "5 holds z 1/-1"})) {
			t.Fatalf("with a dead session: %q", got)
		}
	})
}

func TestANeedIsTheLargestBeforeIt(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, dead := s.actor(t), s.actor(t)
		a.share(t, by(a.units("n", 5, 5), "holder"))
		var attempts []string
		for i, r := range []driver.Request{a.units("n", 2, 5), a.units("n", 1, 5), dead.units("n", 3, 5), a.units("n", 1, 5), dead.request("n"), a.units("n", 1, 5), a.request("n"), a.units("n", 1, 5)} {
			attempts = append(attempts, a.wait(t, by(r, fmt.Sprint(i))))
		}
		want := []string{
			"0 needs 2 n 2/5", "1 needs 2 n 1/5", "2 needs 3 n 3/5", "3 needs 3 n 1/5", "4 needs 0 n 0/0", "5 needs 0 n 1/0",
			"6 needs 0 n 0/0", "7 needs 0 n 1/0", "holder holds n 5/5",
		}
		if got := a.waits(t, attempts...); !slices.Equal(got, want) {
			t.Fatalf("%q\nwant %q", got, want)
		}
		s.exec(t, "UPDATE dblock_sessions SET dead = 1 WHERE id = ?", dead.session)
		want = []string{
			"0 needs 2 n 2/5", "1 needs 2 n 1/5", "3 needs 2 n 1/5", "5 needs 2 n 1/5", "6 needs 0 n 0/0", "7 needs 0 n 1/0", "holder holds n 5/5",
		}
		if got := a.waits(t, attempts...); !slices.Equal(got, want) {
			t.Fatalf("with the dead: %q\nwant %q", got, want)
		}
	})
}

// A chain is as long as its names, and each is a step of the recursion: the servers end it at a
// thousand.
func TestALongRingIsFoundWhole(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const ring = 20
		a := s.actor(t)
		var attempts []string
		for i := range ring {
			a.share(t, by(a.request(fmt.Sprint(i)), fmt.Sprint(i)))
		}
		for i := range ring {
			attempts = append(attempts, a.wait(t, by(a.request(fmt.Sprint((i+1)%ring)), fmt.Sprint(i))))
		}
		if got := a.waits(t, attempts[3]); len(got) != 2*ring {
			t.Fatalf("%d rows: %q", len(got), got)
		}
	})
}
