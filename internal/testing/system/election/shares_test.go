package election

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

const shards = 10

// board shows which member has each shard.
type board struct {
	world
	mu      sync.Mutex
	holders [shards]string
	tokens  [shards]int64
	terms   int
}

// share begins a member.
func (b *board) share(p party, label string) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(b, p.Shares(ctx, name, shards, func(ctx context.Context, shard int, t *election.Term) error {
			b.set(shard, "", label, t.Token())
			<-ctx.Done()
			b.set(shard, label, "", t.Token())
			return nil
		}, election.Owner(label, "indexer")), label)
	}()
	stop = func() { cancel(); <-ended }
	b.Cleanup(stop)
	return stop
}

func (b *board) set(shard int, was, is string, token int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holders[shard] != was || token < b.tokens[shard] {
		b.Errorf("shard %d goes from %q to %q with token %d, and is with %q after token %d", shard, was, is, token,
			b.holders[shard], b.tokens[shard])
	}
	b.holders[shard], b.tokens[shard] = is, token
	if is != "" {
		b.terms++
	}
}

// count returns how many shards each member has.
func (b *board) count() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := map[string]int{}
	for _, holder := range b.holders {
		has[holder]++
	}
	return has
}

// until waits until it is so.
func (b *board) until(what string, is func(has map[string]int) bool) {
	b.Helper()
	for end := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		has := b.count()
		if is(has) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("not in %v: %s; they have %v", patience, what, has)
		}
	}
}

func TestSharesAreHandedToAMemberThatComesAndFromOneThatGoes(t *testing.T) {
	each(t, func(w world) {
		const own = 6 // shards of the second, which its Owner's hash would give 7: half of them and one
		b := &board{world: w}
		has := func(first, second int) func(map[string]int) bool {
			return func(has map[string]int) bool { return has["first"] == first && has["second"] == second }
		}
		b.share(w.party(), "first")
		b.until("the first has all", has(shards, 0))
		stop := b.share(w.party(), "second")
		b.until("the second has its own", has(shards-own, own))
		stop()
		b.until("the first has all again", has(shards, 0))
		if b.terms != shards+2*own {
			w.Errorf("%d terms have begun, want one for each shard and move", b.terms)
		}
	})
}
