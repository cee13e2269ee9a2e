//go:build unix

package fault

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
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

// ringRound makes rings of 2 to 20 owners in up to 5 processes.
func ringRound(w *world) {
	var actors []*process
	for i := range 5 {
		actors = append(actors, w.actor(fmt.Sprintf("actor %d", i), withoutReaper, func(c *actorConfig) {
			c.Deadlock,
				c.TTL = ringInterval, 5*ttl
		}))
	}
	for n, end := 1, session.Boottime()+w.length; n == 1 || session.Boottime() < end; n++ {
		w.ring(actors, fmt.Sprint("ring ", n), 2+w.random.IntN(19))
		w.tried("rings", 1)
	}
	for _, p := range actors {
		p.exit()
	}
}

// bugOldest is a graph of waiters upside down.
const bugOldest = "shows the oldest waiter as the youngest"

func init() {
	bugs[bugOldest] = alone(showsOldest)
}

func showsOldest(ctx context.Context, c *fakedb.Call) error {
	err := c.Do(ctx)
	for i := range c.Waits {
		if !c.Waits[i].Holds {
			c.Waits[i].Since = time.UnixMicro(-c.Waits[i].Since.UnixMicro())
		}
	}
	return err
}

// ring has each of n owners hold a name, and request the next one's. The one that begins to wait
// last is the victim.
func (w *world) ring(actors []*process, prefix string, n int) {
	w.Helper()
	owner := func(i int) *process { return actors[i%len(actors)] }
	name := func(i int) string { return fmt.Sprintf("%s, %d of %d", prefix, i%n, n) }
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
		switch e := owner(i).await(op, evUnlocked); {
		case starvation(e.Err):
			w.starved(e.Err)
		case e.Err != "":
			w.Errorf("unlock: %s", e.Err)
		}
	}
	has, wants := make([]int, n), make([]int, n)
	for i := range n {
		has[i] = acquire(i, name(i), kind(i).has, kind(i).together, 0)
		owner(i).held(has[i])
	}
	for i := range n {
		wants[i] = acquire(i, name(i+1), kind(i+1).wants, kind(i+1).together, has[i])
		eventually(w, "the owner waits", func() bool { return w.waiters(name(i+1)) == 1 })
	}
	var e event
	var victim int
	eventually(w, "one of them gives up", func() (over bool) {
		for victim = 0; victim < n && !over; victim++ {
			e, over = owner(victim).find(wants[victim], evRefused, evHeld)
		}
		return over
	})
	if starvation(e.Err) {
		w.starved(e.Err)
	}
	if victim != n || !e.is(kindDeadlock) {
		w.Fatalf("owner %d ended with %s %q, and the youngest is %d", victim, e.What, e.Err, n)
	}
	for i := range n {
		if !strings.Contains(e.Err, strconv.Quote(name(i))) {
			w.Errorf("%q is not named in %s", name(i), e.Err)
		}
	}
	release(n-1, has[n-1], kind(n-1).together)
	for i := n - 2; i >= 0; i-- { // the others proceed, each when the one after it has done its work
		switch e := owner(i).await(wants[i], evHeld, evRefused); {
		case starvation(e.Err):
			w.starved(e.Err)
		case e.What != evHeld:
			w.Fatalf("owner %d gave up, too: %s", i, e.Err)
		}
		release(i, wants[i], kind(i+1).together)
		release(i, has[i], kind(i).together)
	}
	for i := range n {
		w.queueIsClean(name(i))
	}
}
