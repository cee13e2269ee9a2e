package sqlite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestABatchWaitsForATransactionOnlyWhereItMay(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	tx, err := open(t, f.path, "_txlock=immediate").pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	r := request("n", s)
	r.Patient = false
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if grants, _, err := drivertest.Batch(ctx, f, []protocol.Request{request("m", s), r}, nil); !errors.Is(err,
		driver.ErrBusy) || grants != nil {
		t.Fatalf("%+v, %v", grants, err)
	}
}

func TestASharerIsGuardedAndReleasesInATransaction(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := shared("n", s, 2, 2)
	r.Lease = time.Hour
	held := f.share(r)
	waiter := shared("n", s, 1, 2)
	f.queue(waiter)
	nobody := func(string, int, any) bool { return false }
	for _, commit := range []bool{false, true} {
		tx, err := f.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		stale := held
		stale.Shared = false
		require.ErrorIs(t, f.In(tx).Guard(t.Context(), stale, nil), driver.ErrNotHeld, "guarded as a whole")
		require.NoError(t, f.In(tx).Guard(t.Context(), held, nil))
		require.NoError(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		require.NoError(t, err)
		f.sound()
	}
	state := f.look(s, "n")
	if len(state.Granted) != 1 || state.Granted[0].Attempt != waiter.Attempt {
		t.Fatalf("%+v", state)
	}
	tx, err := f.pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	// A share is in the way of a transaction, also one's own.
	state, locked, err := f.In(tx).Lock(t.Context(), "n", func(string, int, any) bool { return true }, false, nil)
	if err != nil || locked || state.Holder.Attempt != waiter.Attempt {
		t.Fatalf("%+v, %v, %v", state, locked, err)
	}
	if _, locked, err = f.In(tx).Lock(t.Context(), "m", nobody, false, nil); err != nil || !locked {
		t.Fatalf("a name that nobody has: %v, %v", locked, err)
	}
}
