package quorum

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The servers of the benchmark end with the tests.
func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// The promises of a node that a quorum relies on, on tables in memory.
// internal/testing/system/quorum has those of each kind of database.
func TestANodeIsWhatItsDatabaseRemembers(t *testing.T) {
	n := On(dblocktest.New[*struct{}](t, dblock.WithTTL(time.Minute)).Client).node
	m, err := n.Memory(t.Context())
	if err != nil || m.floor != 0 || m.age < 0 || m.age > time.Minute {
		t.Fatalf("an empty database: %+v, %v", m, err)
	}
	clock, err := n.Highest(t.Context())
	if err != nil || clock < time.Now().Add(-time.Hour).UnixMicro() {
		t.Fatalf("the highest of nothing: %d, %v", clock, err)
	}
	l, err := n.TryLock(t.Context(), "n")
	require.NoError(t, err)
	raised, err := l.Raise(t.Context(), l.Token()+int64(time.Hour/time.Microsecond))
	if err != nil || l.Token() != raised {
		t.Fatalf("raised to %d, and it is %d: %v", raised, l.Token(), err)
	}
	if again, err := l.Raise(t.Context(), 1); err != nil || again != raised {
		t.Errorf("raised to 1: %d, %v", again, err)
	}
	if left := time.Until(l.Until()); left <= 0 || left > time.Minute {
		t.Errorf("trusted for %v", left)
	}
	assert.NoError(t, l.Unlock(t.Context()))
	if h, err := n.Highest(t.Context()); err != nil || h != raised {
		t.Errorf("the highest is %d, not %d: %v", h, raised, err)
	}
	next, err := n.TryLock(t.Context(), "n")
	if err != nil || next.Token() <= raised {
		t.Fatalf("token %d after %d: %v", next.Token(), raised, err)
	}
	assert.NoError(t, next.Unlock(t.Context()))
	for _, floor := range []int64{raised + 1e12, 0, 7} {
		require.NoError(t, n.Renew(t.Context(), floor))
		if m, err := n.Memory(t.Context()); err != nil || m.floor != floor || m.age > time.Minute {
			t.Errorf("renewed with %d: %+v, %v", floor, m, err)
		}
		if h, err := n.Highest(t.Context()); err != nil || h < max(floor, next.Token()) {
			t.Errorf("renewed with %d, and the highest is %d: %v", floor, h, err)
		}
	}
	if l, err := n.TryLock(t.Context(), strings.Repeat("x", 300)); !errors.Is(err, dblock.ErrInvalidName) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

// At a grant, what is left of a TTL may be short enough although the TTL is not. A node would then
// count again while a client still trusts it.
func TestATTLThatOutlivesTheQuarantineIsRefused(t *testing.T) {
	for name, long := range map[string]int{"the first": 0, "the last": 2} {
		var nodes []Node
		for i := range 3 {
			ttl := 2 * time.Second
			if i == long {
				ttl += time.Millisecond
			}
			nodes = append(nodes, On(dblocktest.New[*struct{}](t, dblock.WithTTL(ttl)).Client).Named([]string{"berlin",
				"paris", "rome"}[i]))
		}
		if _, err := New(nodes, WithQuarantine(4*time.Second)); !errors.Is(err, dblock.ErrConfig) ||
			!strings.Contains(err.Error(), nodes[long].name) {
			t.Errorf("%s: %v", name, err)
		}
		assert.NoError(t, assert.ErrOf(New(nodes, WithQuarantine(4*time.Second+2*time.Millisecond))), name)
	}
}
