package postgres

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by an id that is in use, as often as there are events.
func TestASequenceOfEventsThatIsBehindFailsNothing(t *testing.T) {
	db := dbtest.Postgres(t)
	pool := db.Pool(t)
	c := newClient(t, New(pool), dblock.WithEvents())
	l, err := c.Lock(t.Context(), "n")
	require.NoError(t, err)
	check := func(err error) {
		t.Helper()
		assert.NoError(t, err)
	}
	events := func(name string) (kinds []string) {
		last := int64(0)
		for e, err := range inspect.New(c).Events(t.Context(), inspect.EventFilter{Name: name}) {
			if check(err); e.ID <= last {
				t.Errorf("%s has the id %d behind %d", e.Kind, e.ID, last)
			}
			last, kinds = e.ID, append(kinds, e.Kind)
		}
		return kinds
	}
	for range 30 {
		check(l.Record(t.Context(), "before", ""))
	}
	require.NoError(t,
		require.ErrOf(pool.Exec(t.Context(), "ALTER TABLE dblock_events ALTER COLUMN id RESTART WITH 1")))
	check(l.Record(t.Context(), "behind", ""))
	check(c.Ask(t.Context(), "n", "why"))
	check(newEngine(pgxDB{pool}).Record(t.Context(), []protocol.Event{{Name: "n", Kind: "one"},
		{Name: "n", Kind: "other"}}))
	if n, err := c.Break(t.Context(), "n", "why"); n != 1 || err != nil {
		t.Errorf("Break: %d, %v", n, err)
	}
	want := []string{"behind", "asked", "one", "other", "broken"}
	got := events("n")
	rest := slices.DeleteFunc(slices.Clone(got), func(kind string) bool { return !slices.Contains(want, kind) })
	if len(got) < 35 || !slices.Equal(rest, want) {
		t.Errorf("the history is %v", got)
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			l, err := c.Lock(t.Context(), fmt.Sprint("x", i))
			if err == nil {
				err = l.Record(t.Context(), "together", "")
			}
			check(err)
		})
	}
	all.Wait()
	<-l.Context().Done()
	_ = l.Unlock(t.Context())
}
