//go:build unix

package fault

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// ascend takes some names in the order of their bytes, in all portions, one by one and together, as
// one owner. Of what goes well it only keeps the number.
func (w *crew) ascend(ctx context.Context, random *rand.Rand, c *client) {
	var unlocks []func(context.Context) error
	for i, name := range w.names {
		switch random.IntN(8) {
		case 0, 1, 2, 3:
			continue
		case 4: // and whatever comes after it
			names, options := []string{name}, []dblock.LockOption{}
			for _, other := range w.names[i+1:] {
				if random.IntN(2) == 0 {
					names = append(names, other)
					options = append(options, dblock.For(other, gradeOf(random, other).options()...))
				}
			}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			asked := session.Boottime()
			all, err := c.LockAll(ctx, names, options...)
			if w.took(name, asked, err) {
				unlocks = append(unlocks, all.Unlock)
			}
		default:
			asked := session.Boottime()
			l, err := c.Lock(ctx, name, gradeOf(random, name).options()...)
			if w.took(name, asked, err) {
				ctx, unlocks = l.Context(), append(unlocks, l.Unlock)
				continue
			}
		}
		break
	}
	if random.IntN(4) == 0 {
		w.linger(random)
	}
	random.Shuffle(len(unlocks), func(i, j int) { unlocks[i], unlocks[j] = unlocks[j], unlocks[i] })
	for _, unlock := range unlocks {
		if err := unlock(context.Background()); err != nil {
			w.actor.report(event{What: evUnlocked}.with(err))
		}
	}
}

// took tells of what went wrong.
func (w *crew) took(name string, asked time.Duration, err error) bool {
	w.done.Add(1)
	w.mu.Lock()
	w.longest = max(w.longest, session.Boottime()-asked)
	w.mu.Unlock()
	if err != nil {
		w.actor.report(event{What: evRefused, Name: name}.with(err))
	}
	return err == nil
}

// Waiters that take names in one order wait in no cycle, however often they check.
func TestOrderedLockingIsNeverTakenForADeadlock(t *testing.T) {
	length := lengthOf(t, "DBLOCK_TEST_ORDERED", 2*time.Second)
	eachAlone(t, func(w *world) {
		random, canary := rand.New(rand.NewPCG(seed(w), 2)), w.canary()
		names := []string{"a", "b", "permits c", "permits d", "read e", "read f", "z"}
		var actors []*process
		for _, label := range []string{"x", "y", "z"} {
			// A TTL that no machine is too busy for: what is lost for want of heartbeats is tested
			// elsewhere.
			p := w.actor(label, func(c *actorConfig) { c.Seed, c.Deadlock, c.TTL = random.Uint64(), 10*time.Millisecond, 5*ttl })
			p.work(modeOrdered, 4, names...)
			actors = append(actors, p)
		}
		pass(length)
		at := session.Boottime()
		var total int64
		var longest time.Duration
		for _, p := range actors {
			e := p.await(p.send(command{Verb: "pause"}), evIdle)
			if e.Rows == 0 {
				w.Errorf("%s got no lock", p.label)
			}
			total, longest = total+e.Rows, max(longest, e.Longest)
			for _, e := range p.all() {
				if e.Err != "" && (e.is(kindDeadlock) || !canary.choked(e.At)) {
					w.Errorf("%s: %s %s: %s", p.label, e.What, e.Name, e.Err)
				}
			}
		}
		w.Logf("%d locks were taken in %v, nobody waited longer than %v, and the last was served %v after the end", total, length, longest, session.Boottime()-at)
		for _, p := range actors {
			p.exit()
		}
		w.nothingIsLeft(session.Boottime())
	})
}
