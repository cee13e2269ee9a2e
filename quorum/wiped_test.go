package quorum

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
)

// A holder has two of three databases. One of these is replaced by an empty one, which with the
// third is a majority without a trace of the holder.
func TestAWipedDatabaseLetsNobodyIn(t *testing.T) {
	gates := newGates(t, 3)
	a, b := newProgram(t, gates), newProgram(t, gates)
	for _, p := range []*program{a, b} { // they connect
		l, err := p.quorum.Lock(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gates[2].set(true, 0)
	l, err := a.quorum.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := gates[0].wipe(); err != nil {
		t.Fatal(err)
	}
	gates[2].set(false, 0)
	second, err := b.quorum.TryLock(t.Context(), "n")
	switch {
	case err == nil && l.Context().Err() == nil:
		t.Errorf("token %d and token %d at once", l.Token(), second.Token())
	case err == nil:
		t.Log("the machine was too busy: the first lock was lost before")
	case !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrUnavailable):
		t.Error(err)
	}
	_ = l.Unlock(t.Context())
	if second != nil {
		_ = second.Unlock(t.Context())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*realTTL)
	defer cancel()
	third, err := b.quorum.Lock(ctx, "n") // on the second and the third
	if err != nil {
		t.Fatal(err)
	}
	if third.Token() <= l.Token() {
		t.Errorf("token %d after %d", third.Token(), l.Token())
	}
	_ = third.Unlock(t.Context())
}
