package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// scene is a world without a nemesis: the test decides what happens.
type scene struct {
	*world
	t *testing.T
}

// scripted runs a test in fake time on some servers.
func scripted(t *testing.T, servers int, b bugs, f func(t *testing.T, s scene)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{rng: &dice{calm: true, r: rand.New(rand.NewPCG(1, 1))}, bugs: b, began: time.Now(),
			highest: map[string]int64{}}
		for range servers {
			s := newServer(&w.bugs, 0)
			s.data.since, s.data.floor = time.Now().Add(-time.Hour), 1
			w.servers = append(w.servers, s)
		}
		f(t, scene{w, t})
		time.Sleep(time.Minute)
	})
}

// client is closed at the end of the scene; its sessions end then.
func (s scene) client(id int, options ...Option) *Client {
	p, c := s.process(id, -1, options...)
	s.t.Cleanup(func() {
		assert.NoError(s.t, c.Close(context.Background()))
		p.mu.Lock()
		p.crashed = true
		p.mu.Unlock()
		time.Sleep(time.Minute)
	})
	return c
}

func (s scene) lock(c *Client) *Lock { s.t.Helper(); return s.lockAs(c, "n") }

func (s scene) lockAs(c *Client, name string) *Lock {
	s.t.Helper()
	l, err := c.TryLock(s.t.Context(), name)
	require.NoError(s.t, err)
	return l
}

func (s scene) unlock(l *Lock) {
	s.t.Helper()
	require.NoError(s.t, l.Unlock(s.t.Context()))
}

// connect opens the sessions of a client, and waits until every node has released what that took.
func (s scene) connect(c *Client) {
	s.t.Helper()
	s.unlock(s.lock(c))
	time.Sleep(fakeLimit) // of fake time: the longest that a release takes
	assert.Equal(s.t, s.holders(), 0, "nodes still hold it")
}

// set changes a server.
func (s scene) set(f func(s *server), which ...int) {
	for _, i := range which {
		s.servers[i].mu.Lock()
		f(s.servers[i])
		s.servers[i].mu.Unlock()
	}
}

func down(s *server) { s.down, s.hangs = true, true }
func up(s *server)   { s.down = false }

// holders returns on how many servers the name is held, a moment later, when requests that were
// called off are undone.
func (s scene) holders() (n int) {
	time.Sleep(20 * time.Millisecond)
	for _, v := range s.servers {
		v.mu.Lock()
		if time.Now().Before(v.data.sessions[v.data.rows["n"].session]) {
			n++
		}
		v.mu.Unlock()
	}
	return n
}

func TestALockIsOnEveryNodeAndGoneFromEveryNode(t *testing.T) {
	scripted(t, 5, bugs{}, func(t *testing.T, s scene) {
		a, b := s.client(1), s.client(2)
		s.connect(a)
		s.set(func(s *server) { s.slow = fakeLimit / 10 }, 1, 4)
		began := time.Now()
		l := s.lock(a)
		if took := time.Since(began); took >= fakeLimit/10 {
			t.Errorf("it took %v: it waited for more than a majority", took)
		}
		assert.Equal(t, s.holders(), 3, "nodes hold it at once")
		s.set(func(s *server) { s.slow = 0 }, 1, 4)
		time.Sleep(fakeLimit) // the others join
		assert.Equal(t, s.holders(), 5, "nodes hold it")
		if until := time.Until(l.Until()); until <= 0 || until > fakeTTL {
			t.Errorf("valid for %v", until)
		}
		var e *Error
		if _, err := b.TryLock(t.Context(), "n"); !errors.Is(err, dblock.ErrNotAcquired) ||
			errors.Is(err, dblock.ErrUnavailable) || !errors.As(err, &e) || len(e.Nodes) < 3 {
			t.Errorf("the second holder: %v", err)
		}
		s.unlock(l)
		assert.NoError(t, l.Unlock(t.Context()), "the second Unlock")
		if !errors.Is(context.Cause(l.Context()), dblock.ErrNotHeld) || !l.Until().IsZero() {
			t.Errorf("%v, until %v", context.Cause(l.Context()), l.Until())
		}
		next := s.lock(b)
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		s.unlock(next)
		assert.Equal(t, s.holders(), 0, "nodes still hold it")
	})
}

func TestWithAMajorityGoneItFailsInTimeNamesTheNodesAndRecovers(t *testing.T) {
	scripted(t, 5, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		s.unlock(s.lock(c))
		s.set(down, 0, 2, 4)
		began := time.Now()
		_, err := c.TryLock(t.Context(), "n")
		if took := time.Since(began); !errors.Is(err, dblock.ErrUnavailable) || took > fakeLimit+100*time.Millisecond {
			t.Errorf("TryLock after %v: %v", took, err)
		}
		for _, node := range []string{"node 1: ", "node 3: ", "node 5: ", "no answer"} {
			if !strings.Contains(err.Error(), node) {
				t.Errorf("%v does not say %q", err, node)
			}
		}
		began = time.Now()
		_, err = c.Lock(t.Context(), "n")
		if took := time.Since(began); !errors.Is(err, dblock.ErrUnavailable) || took < 3*time.Second ||
			took > 3*time.Second+2*fakeLimit {
			t.Errorf("Lock after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Lock(ctx, "n")
		if !errors.Is(err, dblock.ErrUnavailable) || !errors.Is(err, dblock.ErrNotAcquired) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second is over: %v", err)
		}
		assert.Equal(t, s.holders(), 0, "nodes hold it")
		time.AfterFunc(time.Second, func() { s.set(up, 2) })
		l, err := c.Lock(t.Context(), "n")
		require.NoError(t, err)
		s.unlock(l)
		s.set(up, 0, 4)
	})
}

func TestALockOutlivesAMinorityAndIsLostWithTheMajority(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		l := s.lock(c)
		for i := range 6 { // each node in turn is away for longer than its TTL
			s.set(down, i%3)
			time.Sleep(2 * fakeTTL)
			if err := l.Context().Err(); err != nil {
				t.Fatal(context.Cause(l.Context()))
			}
			s.set(up, i%3)
			time.Sleep(fakeTTL)
		}
		until := l.Until()
		s.set(down, 0, 1)
		<-l.Context().Done()
		if late := time.Since(until); late > fakeTTL || !errors.Is(context.Cause(l.Context()), dblock.ErrLost) {
			t.Errorf("lost %v after it was valid no more: %v", late, context.Cause(l.Context()))
		}
		assert.ErrorIs(t, l.Unlock(t.Context()), dblock.ErrLost, "Unlock")
		s.set(up, 0, 1)
		time.Sleep(fakeTTL)
		assert.Equal(t, s.holders(), 0, "nodes hold it")
	})
}

// The machine was suspended: the lock on one of two nodes is over, and no timer has fired yet.
// Another client has held the lock when a third node answers. If that node joined, two of three
// would hold a lock that was lost.
func TestANodeThatComesLateDoesNotReviveALostLock(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		a, b := s.client(1), s.client(2)
		s.unlock(s.lockAs(b, "other")) // connects
		s.set(down, 2)
		s.set(func(s *server) { s.hangs = false }, 2)
		l := s.lock(a) // on 1 and 2; 3 is asked again after two time limits, or three
		s.set(up, 2)
		time.Sleep(2*fakeLimit - 100*time.Millisecond)
		over := l.members[1].(*fakeLock).s
		s.set(func(s *server) { delete(s.data.sessions, over.id) }, 1)
		over.mu.Lock()
		over.deadline = time.Now()
		over.mu.Unlock()
		next := s.lock(b) // on 2 and 3
		s.unlock(next)
		m, _, err := a.grant(t.Context(), 2, "n")
		require.NoError(t, err)
		l.mu.Lock()
		held := l.held
		l.mu.Unlock()
		if !held || !l.Until().IsZero() {
			t.Fatalf("the loss was to be unnoticed, and not undone: held %v, until %v", held, l.Until())
		}
		if l.join(2, m) {
			t.Errorf("token %d lives on after token %d, for %v", l.Token(), next.Token(), time.Until(l.Until()))
		}
		if err := context.Cause(l.Context()); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("asked without a timer: %v", err)
		}
		_ = l.Unlock(t.Context())
	})
}

func TestWhatIsGrantedTooLateIsGivenBack(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		s.unlock(s.lock(c))
		s.set(down, 0)
		s.set(func(s *server) { s.slow = 2 * fakeLimit }, 1)
		assert.ErrorIs(t, assert.ErrOf(c.TryLock(t.Context(), "n")), dblock.ErrUnavailable)
		time.Sleep(5 * fakeLimit)
		assert.Equal(t, s.holders(), 0, "nodes hold it")
		s.set(up, 0)
	})
}

func TestCloseGivesBackAndCallsOff(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		a, b := s.client(1), s.client(2)
		l := s.lock(a)
		waits := make(chan error)
		go func() {
			_, err := b.Lock(t.Context(), "n")
			waits <- err
		}()
		time.Sleep(time.Second)
		assert.NoError(t, b.Close(t.Context()))
		assert.ErrorIs(t, <-waits, dblock.ErrClosed, "the waiter")
		if err := a.Close(t.Context()); err != nil || !errors.Is(context.Cause(l.Context()), dblock.ErrClosed) ||
			s.holders() != 0 {
			t.Errorf("%v, %v, %d nodes hold it", err, context.Cause(l.Context()), s.holders())
		}
		assert.ErrorIs(t, l.Unlock(t.Context()), dblock.ErrClosed, "Unlock")
		assert.ErrorIs(t, assert.ErrOf(a.Lock(t.Context(), "n")), dblock.ErrClosed, "Lock")
	})
}

// late is a node that counts lock requests after ctx has ended.
type late struct {
	node
	ctx   atomic.Pointer[context.Context]
	asked atomic.Int32
}

func (n *late) TryLock(ctx context.Context, name string) (nodeLock, error) {
	if (*n.ctx.Load()).Err() != nil {
		n.asked.Add(1)
	}
	return n.node.TryLock(ctx, name)
}

// The pause between two rounds ends with the context. If a round followed, the nodes would be
// locked, and released at once.
func TestNoRoundIsBegunAfterTheContextHasEnded(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		a, b := s.client(1), s.client(2)
		l := s.lock(b)
		node := &late{node: a.nodes[0].node}
		a.nodes[0].node = node
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Duration(i)*13*time.Millisecond)
			node.ctx.Store(&ctx)
			if _, err := a.Lock(ctx, "n"); !errors.Is(err, dblock.ErrNotAcquired) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			time.Sleep(fakeLimit)
		}
		if n := node.asked.Load(); n > 0 {
			t.Errorf("asked %d times", n)
		}
		s.unlock(l)
	})
}

func TestDoEndsWithTheLock(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		err := c.Do(t.Context(), "n", func(ctx context.Context, l *Lock) error {
			s.set(down, 0, 1)
			<-ctx.Done()
			s.set(up, 0, 1)
			return context.Cause(ctx)
		})
		assert.ErrorIs(t, err, dblock.ErrLost)
		if err := c.Do(t.Context(), "n", func(context.Context, *Lock) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
