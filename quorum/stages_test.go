package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// staged is a node with steps that a test releases one by one.
type staged struct {
	node
	lock, raise gateway
}

// gateway is open when it is nil, or when it is closed.
type gateway chan struct{}

func (g gateway) pass() {
	if g != nil {
		<-g
	}
}

func (n *staged) TryLock(ctx context.Context, name string) (nodeLock, error) {
	n.lock.pass()
	l, err := n.node.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return stagedLock{l, n}, nil
}

type stagedLock struct {
	nodeLock
	n *staged
}

func (l stagedLock) Raise(ctx context.Context, token int64) (int64, error) {
	l.n.raise.pass()
	return l.nodeLock.Raise(ctx, token)
}

// stage makes a client's nodes staged.
func (s scene) stage(c *Client) []*staged {
	nodes := make([]*staged, len(c.nodes))
	for i := range c.nodes {
		nodes[i] = &staged{node: c.nodes[i].node}
		c.nodes[i].node = nodes[i]
	}
	return nodes
}

// After the token is fixed, and before the lock is held, another holder comes and goes.
func TestWhatCameAfterTheTokenDoesNotCount(t *testing.T) {
	for name, late := range map[string]int{"a late grant": 2, "a grant that was lost": 1} {
		t.Run(name, func(t *testing.T) {
			scripted(t, 5, bugs{}, func(t *testing.T, s scene) {
				a, b := s.client(1, WithNodeLimit(time.Minute)), s.client(2)
				nodes := s.stage(a)
				// so that the token has to be written to the others
				s.set(func(s *server) { s.offset = time.Second }, 0)
				raise, lock := make(gateway), make(gateway)
				for _, n := range nodes[1 : 1+late] {
					n.raise = raise
				}
				nodes[3].lock, nodes[4].lock = lock, lock
				outcome := make(chan error)
				var l *Lock
				go func() {
					var err error
					l, err = a.TryLock(t.Context(), "n")
					outcome <- err
				}()
				time.Sleep(time.Second / 4) // 1, 2 and 3 have granted, and only some have the token
				s.set(func(s *server) { clear(s.data.sessions) }, 2)
				time.Sleep(fakeTTL / 4) // the client hears that its session on 3 is dead
				other := s.lock(b)      // on 3, 4 and 5
				s.unlock(other)
				time.Sleep(time.Second / 4)
				if name == "a late grant" {
					close(lock)
					time.Sleep(time.Second / 4)
					close(raise)
				} else {
					close(raise)
					time.Sleep(time.Second / 4)
					close(lock)
				}
				if err := <-outcome; err == nil && l.Token() < other.Token() {
					t.Errorf("token %d after %d", l.Token(), other.Token())
				} else if err == nil {
					s.unlock(l)
				} else if !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrUnavailable) {
					t.Error(err)
				}
			})
		})
	}
}

// A node forgets its holder while the holder is still writing its token to others. A healer that
// asks the others too soon does not learn of the token.
func TestANodeLearnsTheTokensWhenItsQuarantineIsOver(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		a, b := s.client(1, WithNodeLimit(time.Minute)), s.client(2)
		nodes := s.stage(a)
		nodes[1].raise = make(gateway)
		s.set(func(s *server) { s.offset = time.Hour }, 0)
		s.set(func(s *server) { s.down = true }, 2)
		held := make(chan *Lock)
		go func() {
			l, err := a.TryLock(t.Context(), "n") // on 1 and 2
			assert.NoError(t, err)
			held <- l
		}()
		time.Sleep(time.Second / 4)
		s.set(up, 2)
		s.set(func(s *server) { s.wipe(); s.offset = 0 }, 0)
		for range 2 {
			s.unlock(s.lockAs(b, "other")) // finds that 1 is empty
			time.Sleep(time.Second / 10)
		}
		close(nodes[1].raise)
		l := <-held
		if l == nil {
			return
		}
		_ = l.Unlock(t.Context()) // 1 does not know of it
		for range 3 {
			time.Sleep(fakeQuarantine + time.Second)
			s.unlock(s.lockAs(b, "other"))
		}
		s.set(down, 1)
		next := s.lock(b) // on 1 and 3
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		s.unlock(next)
		s.set(up, 1)
	})
}

// A node that has been healed grants late, with a low token of its own and a floor above the token
// that is fixed by then.
func TestAFloorThatCameAfterTheTokenDoesNotCount(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		a := s.client(1, WithNodeLimit(time.Minute))
		nodes := s.stage(a)
		s.set(func(s *server) { s.offset = time.Hour }, 0)
		floor := time.Now().Add(2 * time.Hour).UnixMicro()
		s.set(func(s *server) { s.data.floor = floor }, 2)
		nodes[1].raise, nodes[2].lock = make(gateway), make(gateway)
		outcome := make(chan error)
		var l *Lock
		go func() {
			var err error
			l, err = a.TryLock(t.Context(), "n")
			outcome <- err
		}()
		time.Sleep(time.Second / 4)                                    // 1 and 2 have granted
		s.set(func(s *server) { clear(s.data.sessions); s.wipe() }, 1) // the token cannot be written to 2
		close(nodes[2].lock)
		time.Sleep(time.Second / 4)
		close(nodes[1].raise)
		if err := <-outcome; err == nil {
			t.Errorf("token %d, and the floor is %d", l.Token(), floor)
			s.unlock(l)
		}
	})
}

// prompt is a node that ignores a write that was called off.
type prompt struct{ node }

func (n prompt) TryLock(ctx context.Context, name string) (nodeLock, error) {
	l, err := n.node.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return promptLock{l}, nil
}

type promptLock struct{ nodeLock }

func (l promptLock) Raise(ctx context.Context, token int64) (int64, error) {
	time.Sleep(time.Millisecond)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return l.nodeLock.Raise(ctx, token)
}

// The last node grants when the lock is held already. If the round ended with that, the write of
// the token would be called off.
func TestANodeThatComesLateIsToldTheToken(t *testing.T) {
	scripted(t, 3, bugs{}, func(t *testing.T, s scene) {
		c := s.client(1)
		s.unlock(s.lockAs(c, "other")) // connects
		time.Sleep(fakeLimit)
		c.nodes[2].node = prompt{c.nodes[2].node}
		s.set(func(s *server) { s.offset = time.Hour }, 0) // so that the token has to be written to the others
		s.set(func(s *server) { s.slow = fakeLimit / 10 }, 2)
		l := s.lock(c) // on 1 and 2
		time.Sleep(fakeLimit)
		s.set(func(s *server) {
			if had := s.data.rows["n"].token; had != l.Token() {
				t.Errorf("it has token %d, and knows %d", l.Token(), had)
			}
		}, 2)
		s.unlock(l)
	})
}
