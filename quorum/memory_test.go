package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func wiped(s *server) { s.wipe(); s.down = false }

func TestANodeThatLostItsDataLetsNobodyIn(t *testing.T) {
	for name, b := range map[string]bugs{"as it is": {}, "without the quarantine": {noQuarantine: true}} {
		t.Run(name, func(t *testing.T) {
			scripted(t, 3, b, func(t *testing.T, s scene) {
				a, b := s.client(1), s.client(2)
				s.set(down, 2)
				l := s.lock(a) // on 1 and 2
				s.set(up, 2)
				s.set(wiped, 0)
				second, err := b.TryLock(t.Context(), "n") // on 1 and 3
				if beside := err == nil && l.Context().Err() == nil; beside != s.bugs.noQuarantine {
					t.Errorf("two hold it: %v (%v)", beside, err)
				}
				if !s.bugs.noQuarantine && !errors.Is(err, ErrQuarantined) && !errors.Is(err, dblock.ErrNotAcquired) {
					t.Error(err)
				}
				_ = l.Unlock(t.Context())
				if second != nil {
					_ = second.Unlock(t.Context())
				}
			})
		})
	}
}

// The token of a node with a fast clock is on the other node too. When the fast node forgets it,
// only the other one knows it.
func TestANodeThatLostItsDataLearnsTheTokens(t *testing.T) {
	for name, b := range map[string]bugs{"as it is": {}, "without healing": {noHealing: true}} {
		t.Run(name, func(t *testing.T) {
			scripted(t, 3, b, func(t *testing.T, s scene) {
				c := s.client(1)
				s.unlock(s.lock(c))
				s.set(func(s *server) { s.offset = time.Hour }, 0)
				s.set(down, 2)
				l := s.lock(c) // on 1 and 2
				s.unlock(l)
				s.set(up, 2)
				s.set(func(s *server) { s.wipe(); s.offset = 0 }, 0)
				require.NoError(t, require.ErrOf(c.nodes[0].node.Memory(t.Context())))
				time.Sleep(fakeQuarantine)
				for range 2 { // the next client finds that the node has to be healed
					s.unlock(s.lockAs(c, "other")) // the nodes learn nothing of the first name
					time.Sleep(fakeQuarantine + time.Second)
				}
				s.set(down, 1)
				next := s.lock(c) // on 1 and 3
				if risen := next.Token() > l.Token(); risen == s.bugs.noHealing {
					t.Errorf("token %d after %d", next.Token(), l.Token())
				}
				s.unlock(next)
				s.set(up, 1)
			})
		})
	}
}

func TestARestoredNodeIsQuarantined(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		var before data
		s.set(func(s *server) { before = s.backup() }, 0)
		l := s.lock(c)
		s.unlock(l)
		s.set(func(s *server) { s.data = before }, 0)
		require.NoError(t, Quarantine(t.Context(), c.nodes[0]))
		s.set(down, 1)
		if _, err := c.TryLock(t.Context(), "n"); !errors.Is(err, ErrQuarantined) ||
			!errors.Is(err, dblock.ErrUnavailable) {
			t.Error(err)
		}
		s.set(up, 1)
		s.unlock(s.lock(c)) // on 2 and 3
		for range 4 {
			time.Sleep(fakeQuarantine)
			s.unlock(s.lock(c))
		}
		s.set(down, 1)
		s.unlock(s.lock(c)) // on 1 and 3
		s.set(up, 1)
	})
}

func TestInitIsNeededOnceAndForAllNodes(t *testing.T) {
	scripted(t, 5, bugs{}, func(t *testing.T, s scene) {
		s.set(wiped, 0, 1, 2, 3, 4)
		c := s.client(1)
		nodes := c.nodes
		assert.ErrorIs(t, assert.ErrOf(c.TryLock(t.Context(), "n")), ErrQuarantined)
		time.Sleep(2 * fakeQuarantine)
		assert.ErrorIs(t, assert.ErrOf(c.TryLock(t.Context(), "n")), ErrQuarantined, "nobody called Init")
		s.set(func(s *server) { s.down = true }, 4)
		var e *Error
		if err := Init(t.Context(), nodes...); !errors.As(err, &e) || len(e.Nodes) != 1 || e.Nodes[0].Node != 5 ||
			!errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("a node is away: %v", err)
		}
		s.set(up, 4)
		for range 2 {
			require.NoError(t, Init(t.Context(), nodes...))
			assert.ErrorIs(t, assert.ErrOf(c.TryLock(t.Context(), "n")), ErrQuarantined, "at once after Init")
		}
		time.Sleep(fakeQuarantine)
		s.unlock(s.lock(c))

		s.set(wiped, 0, 1)
		assert.NoError(t, Init(t.Context(), nodes...))
		if m, err := nodes[0].node.Memory(t.Context()); err != nil || m.floor != 0 {
			t.Errorf("Init of a quorum that there is changed a node: %+v, %v", m, err)
		}
		s.set(wiped, 2)
		for range 4 { // nodes that have forgotten heal no other
			require.ErrorIs(t, require.ErrOf(c.TryLock(t.Context(), "n")), ErrQuarantined, "the majority lost its data")
			time.Sleep(fakeQuarantine + time.Second)
		}
		assert.NoError(t, Init(t.Context(), nodes...))
		time.Sleep(fakeQuarantine)
		s.unlock(s.lock(c))
	})
}

func TestOptionsAndNodesAreChecked(t *testing.T) {
	some := func(n int) (nodes []Node) {
		for range n {
			nodes = append(nodes, Node{node: &peer{}, client: new(int)})
		}
		return nodes
	}
	twice := some(3)
	twice[2] = twice[0].Named("again")
	for name, try := range map[string]func() (*Client, error){
		"two nodes":      func() (*Client, error) { return New(some(2)) },
		"four nodes":     func() (*Client, error) { return New(some(4)) },
		"one is none":    func() (*Client, error) { return New([]Node{{}, {}, {}}) },
		"a nil client":   func() (*Client, error) { return New(append(some(2), On[int](nil))) },
		"the same twice": func() (*Client, error) { return New(twice) },
		"a nil option":   func() (*Client, error) { return New(some(3), nil) },
		"a short limit":  func() (*Client, error) { return New(some(3), WithNodeLimit(time.Millisecond)) },
		"no patience":    func() (*Client, error) { return New(some(3), WithPatience(-1)) },
		"a short rest":   func() (*Client, error) { return New(some(3), WithQuarantine(time.Second)) },
		"no logger":      func() (*Client, error) { return New(some(3), WithLogger(nil)) },
	} {
		assert.ErrorIs(t, assert.ErrOf(try()), dblock.ErrInvalidOption, name)
	}
	assert.NoError(t, assert.ErrOf(New(some(5))))
	assert.ErrorIs(t, Quarantine(t.Context(), Node{}), dblock.ErrInvalidOption)
	assert.ErrorIs(t, Init(t.Context()), dblock.ErrInvalidOption)
}
