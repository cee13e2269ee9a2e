package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// contend has clients lock and unlock a name for 8 s, with up to 2 s for each Lock, and some
// milliseconds of work under the lock and between two locks. It counts the locks and the failures.
func contend(clients []*Client) (got, failed int64) {
	var locks, failures atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				trying, cancel := context.WithTimeout(ctx, 2*time.Second)
				l, err := c.Lock(trying, "n")
				cancel()
				switch {
				case err == nil:
					locks.Add(1)
					pause(ctx, 5*time.Millisecond)
					_ = l.Unlock(context.Background())
				case ctx.Err() == nil:
					failures.Add(1)
				}
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	all.Wait()
	return locks.Load(), failures.Load()
}

// When one node refuses and another hangs, a round could keep its grants from other clients until
// the time limit of the hanging node. Broken by waiting in each round for a node that was late in
// the one before.
func TestANodeThatHangsDoesNotStopThoseWhoContend(t *testing.T) {
	for _, contenders := range []int{2, 6} {
		scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
			var clients []*Client
			for i := range contenders {
				clients = append(clients, s.client(i+1))
			}
			well, _ := contend(clients)
			s.set(func(s *server) { s.down, s.hangs = true, false }, 2)
			dead, deadFailed := contend(clients)
			s.set(down, 2)
			hangs, failed := contend(clients)
			t.Logf("%d contenders in 8 s: %d locks when all is well, %d with a dead node (%d failures), %d with one "+
				"that hangs (%d failures)",
				contenders, well, dead, deadFailed, hangs, failed)
			if hangs < dead/2 || failed > deadFailed+hangs/10 {
				t.Errorf("%d locks and %d failures with a node that hangs, %d and %d with one that is dead", hangs,
					failed, dead, deadFailed)
			}
			s.set(up, 2)
		})
	}
}

// counter is a node that counts the lock requests under way.
type counter struct {
	node
	now, most, all atomic.Int32
}

func (n *counter) TryLock(ctx context.Context, name string) (nodeLock, error) {
	n.all.Add(1)
	n.most.Store(max(n.most.Load(), n.now.Add(1)))
	defer n.now.Add(-1)
	return n.node.TryLock(ctx, name)
}

// Broken by rounds that all ask a node that hangs, and by never asking it again.
func TestANodeThatWasLateIsAskedByOneRoundAtATimeAndCountsAgainWhenItAnswers(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		n := &counter{node: c.nodes[2].node}
		c.nodes[2].node = n
		s.set(down, 2)
		s.unlock(s.lock(c))
		time.Sleep(2 * fakeLimit) // it is late
		n.most.Store(0)
		for range 20 {
			s.unlock(s.lock(c))
		}
		if most, all := n.most.Load(), n.all.Load(); most != 1 || all > 4 {
			t.Errorf("asked %d times, up to %d at once", all, most)
		}
		s.set(up, 2)
		time.Sleep(2 * fakeTTL) // the requests that hung have returned
		s.unlock(s.lock(c))
		time.Sleep(fakeLimit)
		s.set(down, 0)
		s.unlock(s.lock(c)) // on 2 and 3
		s.set(up, 0)
	})
}

// A client holds the name on one node for long, and a node that was late now answers after the
// others. Broken by calling off the request to it with the round: it would be late for ever.
func TestANodeThatWasLateIsHeardOutWhenTheRoundHasFailed(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c, other := s.client(1), s.client(2)
		s.set(down, 2)
		s.unlock(s.lock(c))
		time.Sleep(2 * fakeLimit)
		s.set(func(s *server) { s.down, s.slow = false, fakeLimit/5 }, 2)
		time.Sleep(2 * fakeTTL)
		inTheWay, err := other.nodes[1].node.TryLock(t.Context(), "n")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		l, err := c.Lock(ctx, "n")
		require.NoError(t, err)
		s.unlock(l)
		assert.NoError(t, inTheWay.Unlock(t.Context()))
		s.set(func(s *server) { s.slow = 0 }, 2)
	})
}

// A node that was late may be the one that is needed. Broken by not waiting for it where no other
// client is in the way.
func TestANodeThatWasLateIsWaitedForWhereNobodyIsInTheWay(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		s.set(down, 2)
		s.unlock(s.lock(c))
		time.Sleep(2 * fakeLimit)
		s.set(func(s *server) { s.down, s.slow = false, fakeLimit/5 }, 2)
		s.set(func(s *server) { s.down, s.hangs = true, false }, 0)
		time.Sleep(2 * fakeTTL)
		s.unlock(s.lock(c)) // TryLock: one round
		s.set(up, 0)
		s.set(func(s *server) { s.slow = 0 }, 2)
	})
}

// flaky is a node that hangs every other time. The other times its client says at once that it
// cannot be reached.
type flaky struct {
	node
	calls atomic.Int32
}

func (n *flaky) TryLock(ctx context.Context, _ string) (nodeLock, error) {
	if n.calls.Add(1)%2 == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errDown
}

// Broken by taking an error of the node's client for the node's answer.
func TestANodeThatHangsIsLateThoughItsClientAnswersForIt(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c, other := s.client(1), s.client(2)
		s.unlock(s.lockAs(other, "other")) // connects
		c.nodes[2].node = &flaky{node: c.nodes[2].node}
		s.unlock(s.lock(c)) // it hangs
		time.Sleep(2 * fakeLimit)
		s.unlock(s.lock(c)) // its client says that it is away
		inTheWay, err := other.nodes[1].node.TryLock(t.Context(), "n")
		require.NoError(t, err)
		began := time.Now()
		_, err = c.TryLock(t.Context(), "n") // it hangs
		if took := time.Since(began); !errors.Is(err, dblock.ErrNotAcquired) || took > fakeLimit/2 {
			t.Errorf("after %v: %v", took, err)
		}
		assert.NoError(t, inTheWay.Unlock(t.Context()))
	})
}

// When several clients come back within the time of one round, none succeeds.
func TestThePauseBetweenRoundsGrowsWithTheFailuresAndWithTheRounds(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		tries      int
		took, want time.Duration
	}{{1, ms, 20 * ms}, {2, ms, 40 * ms}, {1, 30 * ms, 60 * ms}, {50, ms, 250 * ms}, {50, 0, 250 * ms},
		{50, 100 * ms, 800 * ms}, {1, 300 * ms, 600 * ms}} {
		if got := backoff(c.tries, c.took); got != c.want {
			t.Errorf("after %d rounds of %v: %v, not %v", c.tries, c.took, got, c.want)
		}
	}
}

// stuck is a node that does not notice when a request is called off: its disk hangs, say.
type stuck struct {
	node
	free  chan struct{}
	calls atomic.Int32
}

func (n *stuck) TryLock(context.Context, string) (nodeLock, error) {
	n.calls.Add(1)
	<-n.free
	return nil, errDown
}

// Each request that is stuck keeps a goroutine. Broken by asking the node again and again while a
// lock is held for long.
func TestRequestsThatAreStuckDoNotPileUp(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		n := &stuck{node: c.nodes[2].node, free: make(chan struct{})}
		c.nodes[2].node = n
		l := s.lock(c)
		time.Sleep(100 * 3 * fakeLimit)
		assert.Equal(t, n.calls.Load(), maxStalled, "requests are stuck")
		close(n.free)
		time.Sleep(3 * fakeLimit)
		if calls := n.calls.Load(); calls == maxStalled {
			t.Error("it is asked no more")
		}
		s.unlock(l)
	})
}
