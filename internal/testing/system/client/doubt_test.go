package client

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/sqlite"
)

// doubtful is an engine whose answer to one call is lost: after it was done, or, of a downgrade,
// before.
type doubtful struct {
	leave, breaks, begin, downgrade atomic.Bool
	end                             context.CancelFunc // of the caller of BeginRun
	engine                          driver.Names
}

func (d *doubtful) hook(ctx context.Context, c *fakedb.Call) error {
	if c.Moves() && d.downgrade.Swap(false) {
		<-ctx.Done()
		return ctx.Err()
	}
	err := c.Do(ctx)
	switch {
	case c.Removes(protocol.ByAttempt) && d.leave.Swap(false), c.Removes(protocol.ByForce) && d.breaks.Swap(false):
		return fakedb.ErrLost
	case c.Method == "BeginRun" && d.begin.Swap(false):
		d.end()
		return ctx.Err()
	}
	return err
}

type sqlClient = *dblock.Client[*sql.Tx]

func doubt(t *testing.T) (d *doubtful, client, other sqlClient) {
	t.Helper()
	db := dbtest.SQLite(t).SQL(t)
	engine := sqlite.New(db)
	d = &doubtful{engine: inside.Of(engine)}
	return d, hookedClient(t, db, d.hook), newClient(t, engine)
}

func queued(t *testing.T, c sqlClient, name string, n int) {
	t.Helper()
	for {
		info, err := inspect.New(c).Lock(t.Context(), name)
		require.NoError(t, err)
		if len(info.Waiters) == n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Broken by believing that a writer is one after a Downgrade that was cut off, and may still run.
func TestADowngradeThatRunsLateDoesNothing(t *testing.T) {
	d, client, other := doubt(t)
	l, err := client.Lock(t.Context(), "n")
	require.NoError(t, err)
	held := protocol.Held{Name: "n", Session: client.Stats().Session, Token: l.Token()}
	d.downgrade.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, l.Downgrade(ctx), context.DeadlineExceeded, "downgrade")
	if !l.Shared() {
		t.Error("it may be shared, and says that it is not")
	}
	if err := l.TryUpgrade(t.Context()); err != nil || l.Shared() { // finds out what it is
		t.Fatal(err)
	}
	assert.ErrorIs(t, assert.ErrOf(d.engine.Run(t.Context(), protocol.Downgrade{Held: held})), driver.ErrNotHeld,
		"the late one")
	assert.ErrorIs(t, assert.ErrOf(other.TryLock(t.Context(), "n", dblock.Shared())), dblock.ErrNotAcquired,
		"a reader beside a writer")
	assert.NoError(t, l.Unlock(t.Context()))
}

// Broken by not looking after an answer that was lost: what a client hands to itself nobody else
// tells it.
func TestWhoIsBehindSomebodyWhoGivesUpIsInAtOnceAlthoughTheAnswerWasLost(t *testing.T) {
	d, client, other := doubt(t)
	require.NoError(t, require.ErrOf(other.Lock(t.Context(), "n", dblock.Shared())))
	ctx, cancel := context.WithCancel(t.Context())
	go client.Lock(ctx, "n")
	queued(t, other, "n", 1)
	got := make(chan error, 1)
	go func() {
		_, err := client.Lock(t.Context(), "n", dblock.Shared())
		got <- err
	}()
	queued(t, other, "n", 2)
	time.Sleep(700 * time.Millisecond) // it has looked
	d.leave.Store(true)
	cancel()
	select {
	case err := <-got:
		assert.NoError(t, err)
	case <-time.After(3 * time.Second): // the next look is after five
		t.Error("it was not told, and did not look")
	}
}

func TestBreakCountsWhatItTookAlthoughTheAnswerWasLost(t *testing.T) {
	d, client, other := doubt(t)
	held, err := other.Lock(t.Context(), "n")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := client.Lock(t.Context(), "n")
		got <- err
	}()
	queued(t, other, "n", 1)
	time.Sleep(700 * time.Millisecond)
	d.breaks.Store(true)
	if n, err := client.Break(t.Context(), "n", "for the test"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	select {
	case err := <-got:
		assert.NoError(t, err)
	case <-time.After(3 * time.Second):
		t.Error("who waits was not told, and did not look")
	}
	<-held.Context().Done() // or else Close would say so
}

// Broken by leaving a claim open whose answer was lost: it would count as running for the rest of
// the slot.
func TestASlotThatWasClaimedWithoutTheCallersKnowingCanBeRetried(t *testing.T) {
	d, client, other := doubt(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.end = cancel
	d.begin.Store(true)
	job := func(context.Context, *dblock.Lock, time.Time) error { return nil }
	if ran, err := jobs.New(client).OncePer(ctx, "job", 24*time.Hour, job, jobs.RetryFailed(3, 0)); ran ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ran, err)
	}
	if ran, err := jobs.New(other).OncePer(t.Context(), "job", 24*time.Hour, job, jobs.RetryFailed(3, 0)); !ran ||
		err != nil {
		t.Errorf("again: %v, %v", ran, err)
	}
}

func TestAJobEntersWhatItsCallerHolds(t *testing.T) {
	_, client, _ := doubt(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := client.Do(ctx, "outer", func(ctx context.Context, _ *dblock.Lock) error {
		_, err := jobs.New(client).OncePer(ctx, "job", time.Hour, func(ctx context.Context, _ *dblock.Lock,
			_ time.Time) error {
			l, err := client.Lock(ctx, "outer")
			if err == nil {
				err = l.Unlock(ctx)
			}
			return err
		})
		return err
	})
	assert.NoError(t, err)
}

func TestPermitsUnderLockAllDoNotWaitForThemselves(t *testing.T) {
	_, client, _ := doubt(t)
	all, err := client.LockAll(t.Context(), []string{"a", "b"}, dblock.Permits(1, 1))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(all.Context(), 10*time.Second)
	defer cancel()
	assert.ErrorIs(t, assert.ErrOf(client.Lock(ctx, "a", dblock.Permits(1, 1))), dblock.ErrDeadlock)
	if err := all.Unlock(t.Context()); err != nil || !errors.Is(context.Cause(all.Context()), dblock.ErrNotHeld) {
		t.Error(err, context.Cause(all.Context()))
	}
}
