//go:build unix

package fault

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
)

// ascend takes some names in the order of their bytes, in all portions, one by one and together, as
// one owner. Of what goes well it only keeps the number.
func (w *crew) ascend(ctx context.Context, random *rand.Rand, c *client) {
	var unlocks []func(context.Context) error
	order := w.names
	if w.actor.config.Bug == bugNoOrder {
		order = slices.Clone(order)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for i, name := range order {
		switch random.IntN(8) {
		case 0, 1, 2, 3:
			continue
		case 4: // and whatever comes after it
			names, options := []string{name}, []dblock.LocksOption{}
			for _, other := range order[i+1:] {
				if random.IntN(2) == 0 {
					names = append(names, other)
					options = append(options, dblock.For(other, gradeOf(random, other).options()...))
				}
			}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			all, err := c.LockAll(ctx, names, options...)
			if w.took(name, err) {
				unlocks = append(unlocks, all.Unlock)
			}
		default:
			l, err := c.Lock(ctx, name, gradeOf(random, name).options()...)
			if w.took(name, err) {
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
func (w *crew) took(name string, err error) bool {
	w.done.Add(1)
	if err != nil {
		w.actor.report(event{What: evRefused, Name: name}.with(err))
	}
	return err == nil
}

// bugNoOrder is of callers that take the names in any order.
const bugNoOrder = "locks in no order"

// orderedRound: waiters that take names in one order wait in no cycle, however often they check.
func orderedRound(w *world) {
	names := []string{"a", "b", "permits c", "permits d", "read e", "read f", "z"}
	var actors []*process
	for _, label := range []string{"x", "y", "z"} {
		p := w.actor(label, func(c *actorConfig) {
			c.Seed, c.Deadlock, c.TTL = w.random.Uint64(), 10*time.Millisecond,
				5*ttl
		})
		p.work(modeOrdered, 4, names...)
		actors = append(actors, p)
	}
	pass(w.length)
	for _, p := range actors {
		w.tried("locks", int(p.await(p.send(command{Verb: "pause"}), evIdle).Rows))
		for _, e := range p.all() {
			switch {
			case e.is(kindDeadlock):
				w.Errorf("%s: %s %s: deadlock: %s", p.label, e.What, e.Name, e.Err)
			case e.Err != "":
				w.tried("errors", 1)
			}
		}
	}
	for _, p := range actors {
		p.exit()
	}
	w.nothingIsLeft()
}
