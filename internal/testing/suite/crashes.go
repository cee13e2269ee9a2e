package suite

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

var crashes = inPlaces(own{
	{"a process that has ended on its host is succeeded at once", crashed},
})

// crash ends the process of a client, as far as the others on its host can see.
func crash(t testing.TB, c Client) {
	t.Helper()
	require.NoError(t, inside.Of(c.Client).Life().Close())
}

func crashed(t *testing.T, e *env) {
	if runtime.GOOS == "windows" {
		t.Skip("there the TTL alone decides")
	}
	on := dblock.WithHostFolder(t.TempDir())
	a, c := e.appClient(t, 5, on)
	unlock(t, lock(t, c, "it has a session"))
	holds := func(name string, options ...dblock.LockOption) Client {
		other := e.client(t, on)
		lock(t, other, name, options...)
		return other
	}
	succeeds := func(what string, try func() error) {
		t.Helper()
		eventually(t, soon, what, func() bool {
			err := try()
			if !errors.Is(err, dblock.ErrNotAcquired) {
				require.NoError(t, err)
			}
			return err == nil
		})
	}

	dies := holds("waiter")
	waiter := e.waiter(t, c, "waiter")
	crash(t, dies)
	unlock(t, granted(t, soon, waiter))

	dies = holds("shares", dblock.Permits(1, 3))
	lives := lock(t, c, "shares", dblock.Permits(1, 3))
	waiter = e.waiter(t, c, "shares", dblock.Permits(2, 3))
	crash(t, dies)
	unlock(t, granted(t, soon, waiter))
	unlock(t, lives)

	crash(t, holds("try"))
	succeeds("TryLock", func() error {
		l, err := c.TryLock(t.Context(), "try")
		if err == nil {
			unlock(t, l)
		}
		return err
	})

	dies = holds("transaction")
	tx := beginTx(t, a, e.readCommitted())
	locked := async(func() error { return c.LockTx(context.Background(), tx, "transaction") })
	e.queued(t, "transaction", 1)
	crash(t, dies)
	require.NoError(t, within(t, soon, "LockTx has its turn", locked))
	require.NoError(t, tx.rollback())

	if tx = beginTx(t, a, e.readCommitted()); !a.In(tx).Exclusive() { // else it keeps the burial out
		crash(t, holds("try in a transaction"))
		succeeds("TryLockTx", func() error { return c.TryLockTx(t.Context(), tx, "try in a transaction") })
	}
	require.NoError(t, tx.rollback())

	dies = e.client(t, on)
	runs, over := make(chan bool), make(chan bool)
	defer close(over)
	go func() {
		work := func(context.Context, *dblock.Lock, time.Time) error {
			close(runs)
			<-over
			return nil
		}
		_, _ = dies.OncePer(context.Background(), "job", longSlot, work)
	}()
	<-runs
	per(t, c, "job", longSlot, false)
	crash(t, dies)
	eventually(t, soon, "the slot is free where its options say so", func() bool {
		ran, err := c.OncePer(t.Context(), "job", longSlot, nothing)
		if require.NoError(t, err); ran {
			t.Fatal("a slot ran again without RetryFailed")
		}
		ran, err = c.OncePer(t.Context(), "job", longSlot, nothing, jobs.RetryFailed(1, 0))
		require.NoError(t, err)
		return ran
	})
}
