package election

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// commune has members that share 100 shards, each in a process of its own, in a bubble.
type commune struct {
	*testing.T
	*dblocktest.Fake[*sql.Tx]

	mu     sync.Mutex
	holder [100]string
	token  [100]int64
	moves  int // terms that have begun
}

func inCommune(t *testing.T, f func(c *commune)) {
	synctest.Test(t, func(t *testing.T) {
		f(&commune{T: t, Fake: dblocktest.New[*sql.Tx](t)})
	})
}

// share begins a member, and returns when all is quiet again.
func (c *commune) share(name string, options ...Option) (process *dblocktest.Fake[*sql.Tx], stop func()) {
	process = c.Another(c)
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(c, New(process.Client).Shares(ctx, "n", len(c.holder), func(ctx context.Context, shard int,
			t *Term) error {
			c.begin(name, shard, t)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), ErrResigned) {
				time.Sleep(time.Second) // what it is at
			}
			c.end(name, shard)
			return fmt.Errorf("the context has ended: %w", context.Cause(ctx))
		}, options...), name)
	}()
	stop = func() { cancel(); <-ended }
	c.Cleanup(stop)
	c.rest()
	return process, stop
}

// rest waits for what members do without another change.
func (c *commune) rest() {
	time.Sleep(4 * time.Second)
	synctest.Wait()
}

func (c *commune) begin(name string, shard int, t *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder[shard] != "" || t.Token() <= c.token[shard] {
		c.Errorf("shard %d: %s begins with token %d, beside %q, after token %d", shard, name, t.Token(),
			c.holder[shard], c.token[shard])
	}
	c.holder[shard], c.token[shard] = name, t.Token()
	c.moves++
}

func (c *commune) end(name string, shard int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holder[shard] = ""
}

// held fails unless each shard is with a member.
func (c *commune) held() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for shard, holder := range c.holder {
		if holder == "" {
			c.Errorf("shard %d is with nobody", shard)
		}
	}
}

// divided returns who has the shards, after members have changed. Hardly a shard may have moved but
// from or to a member that has changed, and no member may have more than its part and one.
func (c *commune) divided(before [100]string, changed string) (now [100]string) {
	c.Helper()
	c.held()
	c.mu.Lock()
	defer c.mu.Unlock()
	moved, between := 0, 0
	part := map[string]int{}
	for shard, holder := range c.holder {
		part[holder]++
		if holder != before[shard] {
			moved++
			if before[0] != "" && holder != changed && before[shard] != changed {
				between++
			}
		}
	}
	for holder, has := range part {
		if most := (len(c.holder)+len(part)-1)/len(part) + 1; has > most {
			c.Errorf("%s has %d shards: want at most %d", holder, has, most)
		}
	}
	if moved == 0 || between > 15 || c.moves < moved || c.moves > 2*moved {
		c.Errorf("%d terms have begun for %d shards that moved, %d of them between others than %s", c.moves, moved,
			between, changed)
	}
	c.moves = 0
	return c.holder
}

// Broken by a function that starts before the former one has returned, by members that have other
// ranks than each other, and by a holder that does not make way.
func TestSharesMoveToAndFromMembersThatComeAndGoOnly(t *testing.T) {
	inCommune(t, func(c *commune) {
		var now [100]string
		var stop func()
		for i := range 5 {
			name := fmt.Sprint("member ", i)
			_, stop = c.share(name)
			now = c.divided(now, name)
		}
		// ends in good order: the standby has each shard at once
		stop()
		synctest.Wait()
		c.held()
		c.rest()
		now = c.divided(now, "member 4")
		last, _ := c.share("member 5")
		now = c.divided(now, "member 5")
		// dies: the others have its shards within TTL + 1 s
		last.Down()
		time.Sleep(c.Client.TTL() + time.Second)
		synctest.Wait()
		c.held()
		c.rest()
		now = c.divided(now, "member 5")
		last.Up()
		c.rest()
		c.divided(now, "member 5")
	})
}

// Broken by members that are one owner of all their shards: each has what the other waits for.
func TestAMemberThatWasRestartedWithItsOwnerHasItsSharesAgain(t *testing.T) {
	inCommune(t, func(c *commune) {
		c.share("a", Owner("pod-0", "x"))
		_, stop := c.share("b", Owner("pod-1", "x"))
		was := c.holder
		stop()
		c.rest()
		c.share("b", Owner("pod-1", "x"))
		assert.Equal(c, c.holder, was, "the shards of the restarted one")
	})
}

// Broken by a campaign that ends unseen: this member would have the shard no more, and would not
// stand for it again.
func TestAFunctionThatEndsItsGoroutineEndsShares(t *testing.T) {
	e := New(dblocktest.New[*sql.Tx](t).Client)
	assert.ErrorIs(t, e.Shares(t.Context(), "n", 2, func(ctx context.Context, shard int, _ *Term) error {
		if shard == 1 {
			runtime.Goexit()
		}
		<-ctx.Done()
		return nil
	}), errGone)
}

func TestAnErrorOfOneShardEndsShares(t *testing.T) {
	e := New(dblocktest.New[*sql.Tx](t).Client)
	broken := errors.New("broken")
	assert.ErrorIs(t, e.Shares(t.Context(), "n", 3, func(ctx context.Context, shard int, _ *Term) error {
		if shard == 1 {
			return broken
		}
		<-ctx.Done()
		return nil
	}), broken)
	never := func(context.Context, int, *Term) error { return broken }
	for n, o := range [][]Option{{}, {Weight(2)}, {Metadata(map[string]string{"member": "me"})}} {
		assert.ErrorIs(t, e.Shares(t.Context(), "n", n, never, o...), dblock.ErrInvalidOption)
	}
	assert.ErrorIs(t, e.Shares(t.Context(), "n", 1, nil), dblock.ErrInvalidOption)
	assert.ErrorIs(t, e.Shares(t.Context(), "", 0, never), dblock.ErrInvalidOption)
}

// Broken by a campaign that ends, and all of Shares with it, because it begins while the database
// is away.
func TestAMemberThatHasJoinedSurvivesAnOutage(t *testing.T) {
	const shards = 8
	for what, at := range map[string]string{"before it has seen itself": "n/members", "at a campaign": "n/"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				process := dblocktest.New[*sql.Tx](t)
				e := New(process.Client)
				lock := e.lock
				var away sync.Once
				outage := func() {
					process.Down()
					time.AfterFunc(2*process.Client.TTL(), process.Up)
				}
				e.lock = func(ctx context.Context, name string, options ...dblock.LockOption) (*dblock.Lock, error) {
					joins := name == "n/members"
					if !joins && at == "n/" {
						away.Do(outage)
					}
					l, err := lock(ctx, name, options...)
					if joins && at == name && err == nil {
						away.Do(outage)
					}
					return l, err
				}
				ctx, cancel := context.WithCancel(t.Context())
				var begun atomic.Int32
				ended := make(chan error, 1)
				go func() {
					ended <- e.Shares(ctx, "n", shards, func(ctx context.Context, _ int, _ *Term) error {
						begun.Add(1)
						<-ctx.Done()
						return nil
					})
				}()
				time.Sleep(4 * process.Client.TTL())
				synctest.Wait()
				cancel()
				assert.NoError(t, <-ended)
				if begun.Load() != shards {
					t.Errorf("%d of %d shards have begun", begun.Load(), shards)
				}
			})
		})
	}
}

func TestAShardBelongsToAMemberThatHasIt(t *testing.T) {
	p := planOf(map[string]int{"old": 10, "new": 20, "newer": 20})
	for shard := range 20 {
		owners := 0
		for id, shards := range p.members {
			if shards > shard && p.ranks(id, shards)[shard] == 0 {
				owners++
			}
		}
		if owners != 1 || p.ranks("gone", 20)[shard] != unranked {
			t.Errorf("shard %d has %d owners", shard, owners)
		}
	}
}

// Broken by hashes alone, which give a member twice its part now and then.
func TestNoMemberOwnsMoreThanItsPartAndOne(t *testing.T) {
	for seed := range 50 {
		for _, shards := range []int{1, 12, 100} {
			members := map[string]int{}
			var before []string
			for m := range 6 {
				came := fmt.Sprint("member ", m, " of ", seed)
				members[came] = shards
				p := planOf(maps.Clone(members))
				owners, has, between := p.owners(""), map[string]int{}, 0
				for shard, owner := range owners {
					has[owner]++
					if m > 0 && owner != came && owner != before[shard] {
						between++
					}
				}
				most := (shards+m)/(m+1) + 1
				for id := range members {
					if has[id] > most {
						t.Errorf("seed %d, %d members: one has %d of %d: want %d", seed, m+1, has[id], shards, most)
					}
				}
				if has[""] > 0 || between > shards/4 {
					t.Errorf("seed %d: %d of %d have no owner, %d moved between others", seed, has[""], shards, between)
				}
				if m > 0 { // the standby of each shard owns it once its owner is gone
					rest := maps.Clone(members)
					delete(rest, owners[0])
					if next := planOf(rest).owners("")[0]; p.ranks(next, shards)[0] != standby {
						t.Errorf("seed %d: %s is no standby of shard 0", seed, next)
					}
				}
				before = owners
			}
		}
	}
}
