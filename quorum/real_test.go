package quorum

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	realTTL        = time.Second
	realQuarantine = 2 * time.Second
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// onDatabase makes a node of a database of any kind. Its client is closed when the test has ended.
func onDatabase(t *testing.T, db dbtest.Database, ttl time.Duration) Node {
	t.Helper()
	switch db.Kind {
	case dbtest.KindPostgres:
		client, err := dblock.New(postgres.New(db.Pool(t)), dblock.WithTTL(ttl))
		return closing(t, client, err)
	case dbtest.KindSQLite:
		client, err := dblock.New(sqlite.New(db.SQL(t)), dblock.WithTTL(ttl))
		return closing(t, client, err)
	}
	client, err := dblock.New(mysql.New(db.SQL(t)), dblock.WithTTL(ttl))
	return closing(t, client, err)
}

func closing[TX any](t *testing.T, client *dblock.Client[TX], err error) Node {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own has ended
		defer cancel()
		if err := client.Close(ctx); err != nil && !errors.Is(err, dblock.ErrUnavailable) {
			t.Error(err)
		}
	})
	return On(client)
}

// The promises of a node that a quorum relies on, on each kind of database.
func TestADatabaseKeepsItsMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		n := onDatabase(t, db, time.Minute).node
		m, err := n.Memory(t.Context())
		if err != nil || m.floor != 0 || m.age < 0 || m.age > time.Minute {
			t.Fatalf("an empty database: %+v, %v", m, err)
		}
		clock, err := n.Highest(t.Context())
		if err != nil || clock < time.Now().Add(-time.Hour).UnixMicro() {
			t.Fatalf("the highest of nothing: %d, %v", clock, err)
		}
		l, err := n.TryLock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
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
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if h, err := n.Highest(t.Context()); err != nil || h != raised {
			t.Errorf("the highest is %d, not %d: %v", h, raised, err)
		}
		next, err := n.TryLock(t.Context(), "n")
		if err != nil || next.Token() <= raised {
			t.Fatalf("token %d after %d: %v", next.Token(), raised, err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for _, floor := range []int64{raised + 1e12, 0, 7} {
			if err := n.Renew(t.Context(), floor); err != nil {
				t.Fatal(err)
			}
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
	})
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
			nodes = append(nodes, onDatabase(t, dbtest.SQLite(t), ttl).Named([]string{"berlin", "paris", "rome"}[i]))
		}
		if _, err := New(nodes, WithQuarantine(4*time.Second)); !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(), nodes[long].name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(nodes, WithQuarantine(4*time.Second+2*time.Millisecond)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnginesMayDiffer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		nodes := []Node{onDatabase(t, db, realTTL), onDatabase(t, dbtest.SQLite(t), realTTL), onDatabase(t, dbtest.SQLite(t), realTTL)}
		c, err := New(nodes, WithQuarantine(realQuarantine))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		if _, err := c.TryLock(t.Context(), ""); !errors.Is(err, dblock.ErrInvalidName) {
			t.Errorf("no name: %v", err)
		}
		for until := time.Now().Add(20 * time.Second); ; { // a machine may be too busy to answer in a node's time limit
			_, err := c.TryLock(t.Context(), "n")
			if errors.Is(err, ErrQuarantined) {
				break
			}
			if !errors.Is(err, dblock.ErrUnavailable) || time.Now().After(until) {
				t.Fatalf("before Init: %v", err)
			}
		}
		if err := Init(t.Context(), nodes...); err != nil {
			t.Fatal(err)
		}
		var last int64
		for range 20 {
			l, err := c.Lock(t.Context(), "n") // at first it waits until the quarantine is over
			if err != nil {
				t.Fatal(err)
			}
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			if _, err := c.TryLock(l.Context(), "n"); !errors.Is(err, dblock.ErrNotAcquired) && l.Context().Err() == nil {
				t.Errorf("under its own context: %v", err)
			}
			if err := l.Unlock(l.Context()); err != nil && !errors.Is(err, dblock.ErrLost) { // a machine may be too busy for a short TTL
				t.Fatal(err)
			}
		}
	})
}
