package client

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

var _ dblock.Handle = (*dblock.Lock)(nil)

func TestALockerLocksAsItsClientDoes(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	client := newClient(t, sqlite.New(db))
	locker := client.Locker()
	l, err := locker.Lock(t.Context(), "n")
	require.NoError(t, err)
	if _, is := l.(*dblock.Lock); !is || l.Name() != "n" || l.Token() == 0 || l.Context().Err() != nil {
		t.Errorf("%T %q, token %d, %v", l, l.Name(), l.Token(), l.Context().Err())
	}
	if h, err := locker.TryLock(t.Context(), "n"); h != nil || !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("TryLock of what another holds: %v, %v: want nil and ErrNotAcquired", h, err)
	}
	if h, err := locker.Lock(t.Context(), ""); h != nil || !errors.Is(err, dblock.ErrInvalidName) {
		t.Errorf("Lock of no name: %v, %v: want nil and ErrInvalidName", h, err)
	}
	again, err := locker.TryLock(l.Context(), "n", dblock.Shared())
	if err != nil || again.Token() != l.Token() {
		t.Fatalf("entered again: %v", err)
	}
	for _, h := range []dblock.Handle{again, l} {
		assert.NoError(t, h.Unlock(t.Context()))
	}
	said := errors.New("what the function says")
	if err := locker.Do(t.Context(), "n", func(ctx context.Context, l dblock.Handle) error {
		assert.ErrorIs(t, assert.ErrOf(client.TryLock(t.Context(), "n")), dblock.ErrNotAcquired, "within Do")
		return said
	}); !errors.Is(err, said) {
		t.Errorf("Do: %v", err)
	}
	assert.ErrorIs(t, locker.Do(t.Context(), "n", nil), dblock.ErrInvalidOption, "Do without a function")
}
