//go:build unix

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// ringInterval is when the actors check for deadlocks.
const ringInterval = 500 * time.Millisecond

// link is how an owner of a ring holds its name, and how the owner before it requests that name.
type link struct {
	has, wants portion
	together   bool // with LockAll, and a second name: the request gets another name first, and holds it while it waits
}

var links = []link{
	{},
	{has: reader},
	{has: portion{2, 3}, wants: portion{2, 3}},
	{together: true},
}

// ringSizes are some, each with its owners spread over as many processes as told; with
// DBLOCK_TEST_RINGS all up to that, each owner in a process of its own.
func ringSizes(t testing.TB) (sizes []int, processes int) {
	t.Helper()
	text := os.Getenv("DBLOCK_TEST_RINGS")
	if text == "" {
		return []int{2, 5, 20}, 5
	}
	most, err := strconv.Atoi(text)
	if err != nil || most < 2 {
		t.Fatalf("DBLOCK_TEST_RINGS: %q: want a number of 2 or more", text)
	}
	for n := 2; n <= most; n++ {
		sizes = append(sizes, n)
	}
	return sizes, most
}

func TestARingOfProcessesHasOneVictim(t *testing.T) {
	each(t, func(w *world) {
		sizes, processes := ringSizes(w)
		canary := w.canary()
		var actors []*process
		for i := range processes {
			actors = append(actors, w.actor(fmt.Sprintf("actor %d", i), withoutReaper, func(c *actorConfig) { c.Deadlock, c.TTL = ringInterval, 5*ttl }))
		}
		for _, n := range sizes {
			w.Run(strconv.Itoa(n), func(t *testing.T) {
				(&world{T: t, db: w.db, sql: w.sql}).ring(actors, canary, n)
			})
		}
		for _, p := range actors {
			p.exit()
		}
	})
}

// ring has each of n owners hold a name, and request the next one's. The one that begins to wait
// last is the victim.
func (w *world) ring(actors []*process, canary *canary, n int) {
	w.Helper()
	owner := func(i int) *process { return actors[i%len(actors)] }
	name := func(i int) string { return fmt.Sprintf("ring of %d, %d", n, i%n) }
	kind := func(i int) link { return links[i%n%len(links)] }
	acquire := func(i int, name string, g portion, together bool, under int) int {
		if together {
			also := name + "+"
			if under != 0 {
				also = "!" + name
			}
			return owner(i).send(command{Verb: "lockall", Names: []string{name, also}, Portion: g, Under: under})
		}
		return owner(i).send(command{Verb: "lock", Name: name, Portion: g, Under: under})
	}
	release := func(i, op int, together bool) {
		verb := "unlock"
		if together {
			verb = "unlockall"
		}
		owner(i).send(command{Verb: verb, Hold: op})
		if e := owner(i).await(op, evUnlocked); e.Err != "" {
			w.Errorf("unlock: %s", e.Err)
		}
	}
	has, wants := make([]int, n), make([]int, n)
	for i := range n {
		has[i] = acquire(i, name(i), kind(i).has, kind(i).together, 0)
		owner(i).held(has[i])
	}
	var closed time.Duration
	for i := range n {
		closed = session.Boottime()
		wants[i] = acquire(i, name(i+1), kind(i+1).wants, kind(i+1).together, has[i])
		eventually(w, "the owner waits", func() bool { return w.waiters(name(i+1)) == 1 })
	}
	e := owner(n-1).await(wants[n-1], evRefused, evHeld)
	if !e.is(kindDeadlock) {
		w.Fatalf("the youngest ended with %s %q", e.What, e.Err)
	}
	took := e.At - closed
	w.Logf("%d owners in %d processes: found after %v", n, min(n, len(actors)), took)
	if took > ringInterval+time.Second+scheduling && !canary.choked(e.At) {
		w.Errorf("found after %v, promised are %v", took, ringInterval+time.Second)
	}
	for i := range n {
		if !strings.Contains(e.Err, strconv.Quote(name(i))) {
			w.Errorf("%q is not named in %s", name(i), e.Err)
		}
	}
	release(n-1, has[n-1], kind(n-1).together)
	for i := n - 2; i >= 0; i-- { // the others proceed, each when the one after it has done its work
		if e := owner(i).await(wants[i], evHeld, evRefused); e.What != evHeld {
			w.Fatalf("owner %d gave up, too: %s", i, e.Err)
		}
		release(i, wants[i], kind(i+1).together)
		release(i, has[i], kind(i).together)
	}
	for i := range n {
		w.queueIsClean(name(i))
	}
}
