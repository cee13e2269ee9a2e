package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// tardy is an engine whose answers to Take come late, or are lost, and that can be held up when it
// is to undo them.
type tardy struct {
	late, lost atomic.Int64 // so many answers are
	undo       chan struct{}
	looks      atomic.Int64
	answer     time.Duration // of the first look
}

func (d *tardy) hook(ctx context.Context, c *fakedb.Call) error {
	if c.Removes(protocol.ByAttempt) && d.undo != nil {
		<-d.undo
	}
	err := c.Do(ctx)
	switch r, taken := c.Taken(); {
	case taken && d.late.Add(-1) >= 0:
		time.Sleep(r.Lease) // not a wait for anything: this is the fault
	case taken && d.lost.Add(-1) >= 0:
		return fakedb.ErrLost
	case c.Method == "Read" && d.undo != nil && d.looks.Add(1) == 1: // the look shows the attempt that is to be undone
		close(d.undo)
		time.Sleep(d.answer)
	}
	return err
}

func slowClient(t *testing.T) (*tardy, sqlClient, sqlClient) {
	t.Helper()
	db, d := dbtest.SQLite(t).SQL(t), &tardy{}
	return d, hookedClient(t, db, d.hook), newClient(t, sqlite.New(db))
}

// Broken by trying again at once: the next attempt finds the one before it, which is being undone,
// and takes it for somebody.
func TestAGrantThatComesAfterItsLeaseIsNotTakenForSomebody(t *testing.T) {
	const lease = 100 * time.Millisecond
	d, client, other := slowClient(t)
	for i, try := range []func(context.Context, string, ...dblock.LockOption) (*dblock.Lock, error){client.TryLock,
		client.Lock} {
		d.late.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 10*lease)
		_, err := try(ctx, "n", dblock.Lease(lease))
		cancel()
		slow := strings.Contains(err.Error(), "too slow for a lease of 100ms")
		// while Lock asks once more
		again := i == 1 && strings.Contains(err.Error(), "no answer before the context ended")
		if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrNotAcquired) || !slow && !again {
			t.Errorf("%v: want that it was too slow", err)
		}
		d.late.Store(0)
		l, err := other.Lock(t.Context(), "n")
		require.NoError(t, err)
		assert.NoError(t, l.Unlock(t.Context()))
	}
}

func TestAnAttemptThatIsBeingUndoneIsNotTakenForSomebody(t *testing.T) {
	for what, answer := range map[string]time.Duration{
		"while it is being undone":        0,
		"that was undone in the meantime": 50 * time.Millisecond, // by then, the fault being a slow answer
	} {
		t.Run(what, func(t *testing.T) { lookAtOwnAttempt(t, answer) })
	}
}

// lookAtOwnAttempt has the answer to a look come so long after the attempt that it shows could be
// undone.
func lookAtOwnAttempt(t *testing.T, answer time.Duration) {
	d, client, _ := slowClient(t)
	d.undo, d.answer = make(chan struct{}), answer
	d.lost.Store(1)
	l, err := client.TryLock(t.Context(), "n")
	require.NoError(t, err)
	assert.NoError(t, l.Unlock(t.Context()))
}
