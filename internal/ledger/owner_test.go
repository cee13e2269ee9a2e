package ledger

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/deadlock"
)

// Broken by numbers that begin anew, and by owners that number their requests together: each has a
// number of levels of its own.
func TestRequestsUnderOneLockHaveDifferentPaths(t *testing.T) {
	owners := newLedger(t, nil).Owners
	under := func(ctx context.Context, o Owner) (inner context.Context, path string) {
		path = deadlock.PathOf(owners.Attempt(ctx, o))
		return owners.With(ctx, o, path), path
	}
	o := owners.Of(t.Context(), nil)
	outer, _ := under(t.Context(), o)
	_, first := under(outer, o)
	for range 100_000 {
		if _, path := under(outer, o); deadlock.Under(path, first) || deadlock.Under(first, path) {
			t.Fatalf("%q and %q are beside each other", first, path)
		}
	}
	other := owners.Of(t.Context(), nil)
	ctx, levels := t.Context(), 0
	for before := "-"; ; levels++ {
		inner, path := under(ctx, other)
		if path == before {
			break
		}
		ctx, before = inner, path
	}
	if levels < 10 {
		t.Errorf("an owner has %d levels after the requests of another", levels)
	}
}
