//go:build unix

package fault

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/session"
)

const (
	members = 8
	shards  = 100
	// mostStrays is how many shards may move between members that stay, since their bounds change.
	mostStrays = shards / 8
	// strays begins the violations of more shards that left a member without need.
	strays = "strays"
)

// bugStrays is of members that give their shards up, all at once, each strayPeriod.
const (
	bugStrays   = "gives shards up that are its own"
	strayPeriod = 4 * ttl
)

// share makes the actor a member, which says what it has.
func (a *actor) share(c command) {
	a.take(func(ctx context.Context, s *stand) error {
		err := s.elections.Shares(ctx, c.Name, shards, func(ctx context.Context, _ int, t *election.Term) error {
			if a.config.Bug == bugStrays {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, strayPeriod-session.Boottime()%strayPeriod)
				defer cancel()
			}
			a.rule(ctx, int(s.ops.Add(1)), t, 50*assurance)
			return nil
		})
		if ctx.Err() == nil {
			a.report(event{What: evRefused, Op: c.Op}.with(err))
		}
		return err
	})
}

// sharesRound kills and stops members, and ends them in good order. All shards are with members
// again, few of the others have moved, and no two members had a shard at once.
func sharesRound(w *world) {
	b := &ballot{world: w, running: make([]*process, members)}
	enter := func(i int) {
		b.running[i] = b.launch(fmt.Sprintf("member %d", len(b.all)), "share")
		b.all = append(b.all, b.running[i])
	}
	for i := range members {
		enter(i)
	}
	before := b.divided(nil)
	for n, end := 0, session.Boottime()+w.length; n == 0 || session.Boottime() < end; n++ {
		i := w.random.IntN(members)
		p := b.running[i]
		switch w.random.IntN(3) {
		case 0:
			p.kill()
			b.remain(before, b.divided(p), p)
			enter(i)
		case 1:
			b.gone(p, p.send(command{Verb: "exit"}))
			b.remain(before, b.divided(p), p)
			enter(i)
		case 2:
			b.halt(p)
			b.remain(before, b.divided(p), p)
			p.resume()
		}
		w.tried("members that went", 1)
		before = b.divided(nil)
	}
	b.exclusive(b.all...)
	for _, p := range b.running {
		b.gone(p, p.send(command{Verb: "exit"}))
	}
}

// divided waits until all members but one have shards, and each shard has been with the same member
// for a TTL. It returns their terms, by name. A member that has no shard yet will take its part
// from members that stay.
func (b *ballot) divided(without *process) map[string]event {
	b.Helper()
	var last map[string]event
	since := session.Boottime()
	eventually(b, "all shards are with members", func() bool {
		now, owner := map[string]event{}, map[string]*process{}
		for _, p := range b.running {
			if p == without {
				continue
			}
			for _, e := range p.all() {
				switch {
				case e.What == evHeld && e.Token > now[e.Name].Token:
					now[e.Name], owner[e.Name] = e, p
				case e.What == evLost && now[e.Name].Token == e.Token:
					delete(now, e.Name)
					delete(owner, e.Name)
				}
			}
		}
		owners := slices.Collect(maps.Values(owner))
		idle := slices.ContainsFunc(b.running, func(p *process) bool {
			return p != without && !slices.Contains(owners, p)
		})
		if idle || len(now) < shards || !maps.EqualFunc(now, last, sameTerm) {
			last, since = now, session.Boottime()
			return false
		}
		return session.Boottime()-since > ttl
	})
	return last
}

func sameTerm(a, b event) bool { return a.Token == b.Token }

// remain checks that few shards have moved but those of one member. A member that lost its locks
// for want of heartbeats is one, too.
func (b *ballot) remain(before, now map[string]event, gone *process) {
	b.Helper()
	type term struct { // two names may have the same token
		name  string
		token int64
	}
	left := map[term]bool{}
	for _, p := range b.running {
		for _, e := range p.all() {
			t := term{e.Name, e.Token}
			left[t] = left[t] || p == gone || e.is(kindLost)
		}
	}
	var strayed []string
	for name, e := range before {
		if now[name].Token != e.Token && !left[term{name, e.Token}] {
			strayed = append(strayed, name)
		}
	}
	if len(strayed) > mostStrays {
		b.Errorf("%s: %v have moved from members that live", strays, strayed)
	}
	b.tried("shards moved between members that stayed", len(strayed))
}

// twoMembers have the same shards.
func twoMembers(w *world) {
	b := newPair(w)
	for _, p := range b.running {
		eventually(w, p.label+" has a shard", func() bool { return p.count(evHeld) > 0 })
	}
	pass(ttl)
	w.exclusive(b.running...)
}

// unchangedMembers keep what they have, while none comes and none goes.
func unchangedMembers(w *world) {
	b := newPair(w)
	before := b.divided(nil)
	pass(strayPeriod)
	b.remain(before, b.divided(nil), nil)
}

// newPair has two members.
func newPair(w *world) *ballot {
	b := &ballot{world: w}
	b.running = []*process{b.launch("one", "share"), b.launch("two", "share")}
	return b
}
