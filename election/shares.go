package election

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
)

const (
	// members, below the name of the shares, is the name that all members hold shared.
	members = "/members"
	// memberKey and shardsKey are the keys of a member's identity and of its number of shards in
	// the metadata of its lock.
	memberKey, shardsKey = "member", "shards"
	// joined is the kind of the event that a new member records, so that the others look at once.
	joined = "joined"
	// standby is the rank of the member that waits in the queue of a shard behind its owner.
	standby = 1
	// unranked is the rank of a member that does not campaign for a shard.
	unranked = standby + 1
	// ownerWeight is the weight of the owner of a shard in its queue. A standby has the default.
	ownerWeight = defaultWeight + 1
)

// errGone is the error of a function that did not return.
var errGone = errors.New("the function has ended its goroutine (runtime.Goexit)")

// ShardName returns the name of a shard of Shares: the name of its lock, and of its election.
func ShardName(name string, shard int) string { return name + "/" + strconv.Itoa(shard) }

// Shares divides work into n shards, 0 to n-1, among the processes that call Shares with the name,
// its members. It runs fn for each shard that this process has, in goroutines of their own, until
// ctx ends. Each shard is an election under ShardName, so that at most one process has it at a
// time, and each term has a token. See Campaign for the context of fn, and for results and errors.
// An error of fn for one shard ends Shares. A panic of fn ends the program.
//
// Rendezvous hashing gives each shard to one of the living members, its owner. No member owns more
// than ⌈n ÷ members⌉ + 1. A member that comes gets the shards that it owns, and few others move.
// The contexts of their functions end with ErrResigned, the functions return when it suits, and the
// shards are handed over. The shards of a member that ends or dies go to the next owners, which
// wait in the queues: with the release, or within TTL + 1 s. Until the owner of a shard waits for
// it, another member may have it.
//
// The options are those of Campaign, except Weight. With Owner, a restarted process owns the shards
// of its predecessor. Without, it is a new member. The keys "member" and "shards" of Metadata are
// reserved. While members with another n live, a shard is divided among those that have it.
func (e *Elections) Shares(
	ctx context.Context, name string, n int, fn func(ctx context.Context, shard int, t *Term) error, options ...Option,
) error {
	c, err := e.prepare(ctx, name+members, fn == nil, options)
	if err != nil {
		return fail("shares", name+members, err)
	}
	if n < 1 || c.weight != defaultWeight || c.metadata[memberKey]+c.metadata[shardsKey] != "" {
		err := fmt.Errorf("%w: Shares of %d: want 1 or more, no Weight, and no key %q or %q in Metadata",
			dblock.ErrInvalidOption, n, memberKey, shardsKey)
		return fail("shares", name+members, err)
	}
	s := &shares{
		Elections: e, name: name, me: rand.Text(), config: c, fn: fn,
		ranks: slices.Repeat([]int{unranked}, n), campaigns: make([]*campaign, n), ended: make(chan result),
		moved: make(chan struct{}, 1),
	}
	if c.owner != nil {
		s.me = c.owner.host + "/" + c.owner.thread
	}
	metadata := with(c.metadata, map[string]string{memberKey: s.me, shardsKey: strconv.Itoa(n)})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for err == nil && ctx.Err() == nil {
		err = s.join(ctx, dblock.Metadata(metadata))
	}
	cancel()
	go func() { s.running.Wait(); close(s.ended) }()
	for r := range s.ended {
		err = driver.Join(err, s.end(r))
	}
	return err
}

// shares is one call of Shares. Its goroutine alone uses it, except where noted.
type shares struct {
	*Elections
	name   string
	me     string // the identity of this member
	config config
	fn     func(ctx context.Context, shard int, t *Term) error

	members   map[string]int // the living members, and the number of shards of each; nil: it has not joined yet
	ranks     []int          // of this member among the living ones, for each shard; 0: it is the owner
	campaigns []*campaign    // for each shard; nil: there is none
	running   sync.WaitGroup // of them
	ended     chan result    // of campaigns
	moved     chan struct{}  // a function has begun or returned; other goroutines send
}

// campaign is the campaign for a shard.
type campaign struct {
	stop    context.CancelFunc
	stopped bool
	rank    int                  // with which it stands
	term    atomic.Pointer[Term] // while the function runs; withdrawn: it will not run
	asked   *Term                // the latest term that was asked to end
	failure error                // of the function, before its context ended; to be read after the campaign
}

// withdrawn is the term of a campaign that was stopped before its function began. A function that
// has begun is asked to return, and is not ended.
var withdrawn = new(Term)

// runs returns the term of a function that runs and was not asked to return, or nil.
func (c *campaign) runs() *Term {
	if t := c.term.Load(); t != c.asked && t != withdrawn {
		return t
	}
	return nil
}

// result is the end of a campaign.
type result struct {
	shard int
	err   error
}

// join is a member until its lock is lost, ctx ends, or a campaign fails.
func (s *shares) join(ctx context.Context, metadata dblock.LockOption) error {
	lock, err := s.lock(ownerless{ctx}, s.name+members, dblock.Shared(), metadata)
	switch {
	case err == nil && s.members == nil:
		s.members = map[string]int{}
	case err == nil:
	case ctx.Err() != nil:
		return nil
	case transient(err) && s.members != nil:
		pause(ctx, retryPause)
		return nil
	default:
		return fail("shares", s.name+members, err)
	}
	defer lock.Unlock(ctx) // before the functions have returned, so that the next owners queue; retried by the client
	inner, cancel := context.WithCancel(lock.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	infos := make(chan inspect.Info)
	watching.Go(func() {
		for inner.Err() == nil {
			for info, err := range s.inspector.Watch(inner, lock.Name()) {
				if err != nil {
					break
				}
				select {
				case infos <- info:
				case <-inner.Done():
				}
			}
			pause(inner, retryPause)
		}
	})
	_ = lock.Record(inner, joined, "") // on failure the others notice the member later
	return s.divide(ctx, inner, infos)
}

// divide begins and ends campaigns as members come and go, until inner ends or a campaign fails.
func (s *shares) divide(ctx, inner context.Context, infos <-chan inspect.Info) error {
	var look <-chan time.Time // not nil: a function runs here for the shard of another owner
	for wait := minReread; ; {
		if s.adjust(ctx) && look == nil {
			look = time.After(wait)
		}
		select {
		case info := <-infos:
			s.count(info)
			wait = minReread
		case r := <-s.ended:
			if err := s.end(r); err != nil {
				return err
			}
		case <-s.moved:
			wait = minReread
		case <-look:
			s.giveWay(inner)
			look, wait = nil, min(2*wait, maxReread)
		case <-inner.Done():
			return nil
		}
	}
}

// count ranks this member among the living ones.
func (s *shares) count(i inspect.Info) {
	alive := map[string]int{}
	for _, p := range i.Holders {
		if n, err := strconv.Atoi(p.Metadata[shardsKey]); err == nil && p.Alive {
			alive[p.Metadata[memberKey]] = n
		}
	}
	if maps.Equal(alive, s.members) {
		return
	}
	s.members = alive
	s.ranks = planOf(alive).ranks(s.me, len(s.ranks))
}

// adjust begins the campaigns of the owner and of the standby, and ends those that wait with
// another rank than the present one. A campaign of the present rank follows. adjust returns true if
// a function that was not asked to return runs here for another owner's shard.
func (s *shares) adjust(ctx context.Context) (foreign bool) {
	for shard, rank := range s.ranks {
		c := s.campaigns[shard]
		switch {
		case c == nil && rank > standby:
		case c == nil:
			s.begin(ctx, shard, rank)
		case c.runs() != nil:
			foreign = foreign || rank > 0
		case rank != c.rank && c.term.CompareAndSwap(nil, withdrawn):
			c.stopped = true
			c.stop()
		}
	}
	return foreign
}

// begin begins the campaign for a shard.
func (s *shares) begin(ctx context.Context, shard, rank int) {
	ctx, cancel := context.WithCancel(ctx)
	c := &campaign{stop: cancel, rank: rank}
	s.campaigns[shard] = c
	prepared := s.config
	if rank == 0 {
		prepared.weight = ownerWeight
	}
	if prepared.owner != nil { // one owner of several shards would wait for its rival, and its rival for it: a deadlock
		prepared.owner = &owner{prepared.owner.host, ShardName(prepared.owner.thread, shard)}
	}
	moved := func() {
		select {
		case s.moved <- struct{}{}:
		default:
		}
	}
	s.running.Go(func() {
		ended := result{shard, errGone}
		defer func() { s.ended <- ended }() // also of a function that ends its goroutine
		ended.err = s.campaign(ctx, ShardName(s.name, shard), prepared, true, func(ctx context.Context, t *Term) error {
			if !c.term.CompareAndSwap(nil, t) {
				return nil
			}
			moved()
			defer func() { c.term.Store(nil); moved() }()
			err := s.fn(ctx, shard, t)
			if ctx.Err() == nil {
				c.failure = err
			}
			return err
		})
	})
}

// end forgets a campaign. It returns the error that ends Shares.
func (s *shares) end(r result) error {
	c := s.campaigns[r.shard]
	s.campaigns[r.shard] = nil
	c.stop()
	if c.stopped { // the function may have returned another error because its context has ended
		return c.failure
	}
	return r.err
}

// giveWay asks the functions of shards to return for which the owner waits. The campaigns of this
// member for these shards may have the weight of an owner, which it was.
func (s *shares) giveWay(ctx context.Context) {
	shards := map[string]inspect.Info{}
	for info := range s.inspector.List(ctx, inspect.Filter{Prefix: s.name + "/"}) {
		shards[info.Name] = info
	}
	for shard, c := range s.campaigns {
		if c == nil || s.ranks[shard] == 0 || !outweighed(shards[ShardName(s.name, shard)], defaultWeight) {
			continue
		}
		if t := c.runs(); t != nil {
			c.asked = t
			t.Resign()
		}
	}
}
