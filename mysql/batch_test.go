package mysql_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func (a actor) requests(names ...string) (rs []protocol.Request) {
	for _, name := range names {
		rs = append(rs, a.request(name))
	}
	return rs
}

// batched is what a batch returned.
type batched struct {
	grants   []protocol.Grant
	released []bool
}

func (s server) batch(t *testing.T, a actor, takes []protocol.Request, releases []protocol.Held) batched {
	t.Helper()
	got := <-start(t, func(ctx context.Context) (e batched, err error) {
		e.grants, e.released, err = drivertest.Batch(ctx, a, takes, releases)
		return e, err
	})
	require.NoError(t, got.err)
	if len(got.value.grants) != len(takes) || len(got.value.released) != len(releases) {
		t.Fatalf("%+v for %d and %d", got.value, len(takes), len(releases))
	}
	return got.value
}

func TestABatchTakesWhatIsFreeAndPassesOverTheRest(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		for _, name := range []string{"locked", "free"} {
			does(t, a, protocol.Release(a.take(t, name), false, false))
		}
		row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'locked' FOR UPDATE")
		rs := b.requests("locked", "free", "new", "n\x00e\xffw", "Ä")
		last := &rs[len(rs)-1]
		last.Host, last.Thread, last.Metadata, last.Lease, last.MinHold = "höst", "thr'\"\\ead", `{"k":"ü"}`, time.Hour,
			time.Minute
		got := s.batch(t, b, rs, nil)
		for i, r := range rs {
			row := s.number(t, "SELECT token FROM dblock_locks WHERE name = ? AND session_id = ? AND host = ? AND "+
				"thread = ? AND attempt = ?",
				r.Name, b.session, r.Host, r.Thread, r.Attempt)
			if want := i > 0; want != (row > 0) || row > 0 && row != got.grants[i].Token ||
				!want && got.grants[i].Token != 0 {
				t.Errorf("%q: token %d in the row, %+v returned: want it taken: %v", r.Name, row, got.grants[i], want)
			}
		}
		assert.Equal(t, got.grants[len(rs)-1].Lease, time.Hour)
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE metadata <> '' AND expires_at = acquired_at + "+
			"3600000000 AND rests_until = acquired_at + 60000000"); n != 1 {
			t.Errorf("%d rows have the lease, the cool-down and the metadata", n)
		}
		require.NoError(t, row.Commit())
	})
}

func TestABatchReleasesWhatIsHeldAndNobodyWaitsFor(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		idle, contended, locked, again := a.take(t, "idle"), a.take(t, "contended"), a.take(t, "locked"),
			a.take(t, "again")
		b.enqueue(t, "contended")
		row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'locked' FOR UPDATE")
		others, old := idle, again
		others.Session, others.Name = b.session, "again"
		old.Token--
		releases := []protocol.Held{locked, contended, idle, others, {Name: "missing", Session: a.session, Token: 1}}
		got := s.batch(t, a, a.requests("m", "l"), releases)
		if want := []bool{false, false, true, false, false}; !slices.Equal(got.released, want) ||
			got.grants[0].Token == 0 || got.grants[1].Token == 0 {
			t.Fatalf("%+v, want %v", got, want)
		}
		if got := s.batch(t, a, nil, []protocol.Held{old}); got.released[0] {
			t.Fatal("released with an old token")
		}
		require.NoError(t, row.Commit())
		if got := s.batch(t, a, nil, []protocol.Held{again, locked}); !got.released[0] || !got.released[1] {
			t.Fatalf("%+v", got)
		}
	})
}

// A batch with new names is several transactions. One of them alone takes and releases: an error
// says nothing about results that have been committed before.
func TestABatchThatFailsHasDoneNothing(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.actor(t)
		held := a.take(t, "held")
		does(t, a, protocol.Release(a.take(t, "old"), false, false))
		var made, cut atomic.Bool
		proxy.Watch(func(request []byte) {
			switch {
			case bytes.Contains(request, []byte("-- name: MakeRows")):
				made.Store(true)
			case made.Load() && bytes.Contains(request, []byte("START TRANSACTION")) && !cut.Swap(true):
				proxy.Cut()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, _, err := drivertest.Batch(ctx, a, a.requests("old", "new"), []protocol.Held{held})
		is(t, err, driver.ErrUnavailable)
		assert.Equal(t, cut.Load(), true, "it was not cut off")
		const all = "SELECT SUM(name = 'held') * 10 + COUNT(*) FROM dblock_locks WHERE session_id = ?"
		assert.Equal(t, s.number(t, all, a.session), 11, "it has released a lock, or taken one")
	})
}

// Two batches at once lock the rows in one order, and wait for none.
func TestBatchesInOppositeOrdersDoNotDeadlock(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		var all sync.WaitGroup
		for reverse := range 2 {
			a := s.actor(t)
			all.Go(func() {
				for round := range 30 {
					var names []string
					for i := range 20 { // old names, and new ones that both make
						names = append(names, fmt.Sprint("old ", i), fmt.Sprint("new ", round, " ", i))
					}
					if reverse == 1 {
						slices.Reverse(names)
					}
					grants, _, err := drivertest.Batch(t.Context(), a, a.requests(names...), nil)
					if err != nil {
						t.Error(err)
						return
					}
					var held []protocol.Held
					for i, g := range grants {
						if g.Token != 0 {
							held = append(held, protocol.Held{Name: names[i], Session: a.session, Token: g.Token})
						}
					}
					if reverse == 1 {
						slices.Reverse(held)
					}
					for len(held) > 0 {
						if held, err = drivertest.ReleaseAll(t.Context(), a, held); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		all.Wait()
	})
}

func TestABatchIsFewRoundTrips(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.attending(t)
		var names []string
		for i := range 256 {
			names = append(names, fmt.Sprint(i))
		}
		var held []protocol.Held
		for _, r := range s.batch(t, a, a.requests(names...), nil).grants { // makes rows, and prepares
			held = append(held, protocol.Held{Name: names[len(held)], Session: a.session, Token: r.Token})
		}
		for _, released := range s.batch(t, a, nil, held).released {
			if !released {
				t.Fatal("not released")
			}
		}
		var requests atomic.Int64
		proxy.Watch(func([]byte) { requests.Add(1) })
		for _, g := range s.batch(t, a, a.requests(names...), nil).grants {
			if g.Token == 0 {
				t.Fatal("not taken")
			}
		}
		if n := requests.Load(); n > 8 { // four, the longer of them in several pieces
			t.Errorf("%d requests for 256 names", n)
		}
	})
}
