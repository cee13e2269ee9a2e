package client

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// deaf is an engine whose answers to changes of a lock's standing are lost on request, after the
// change was made.
type deaf struct {
	lost atomic.Pointer[context.CancelFunc]
}

func (d *deaf) hook(ctx context.Context, c *fakedb.Call) error {
	err := c.Do(ctx)
	if c.Moves() {
		if end := d.lost.Swap(nil); end != nil {
			(*end)()
			return fakedb.ErrLost
		}
	}
	return err
}

// After a change whose outcome is not known, whatever comes next finds out what the lock is.
func TestALockKnowsWhatItIsAfterAnAnswerThatWasLost(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	d := &deaf{}
	client, other := hookedClient(t, db, d.hook), newClient(t, sqlite.New(db))
	type lock = *dblock.Lock
	changes := map[string]struct {
		options []dblock.LockOption
		do      func(ctx context.Context, l lock) error
		shared  bool // afterwards
	}{
		"downgrade": {nil, func(ctx context.Context, l lock) error { return l.Downgrade(ctx) }, true},
		"upgrade": {[]dblock.LockOption{dblock.Shared()}, func(ctx context.Context, l lock) error {
			return l.TryUpgrade(ctx)
		}, false},
		"raise": {nil, func(ctx context.Context, l lock) error {
			_, err := inside.Of(l).Raise(ctx, l.Token()+1000)
			return err
		}, false},
	}
	next := map[string]func(l lock, shared bool) error{
		"unlock": func(lock, bool) error { return nil }, // it comes anyway
		"guard": func(l lock, shared bool) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := client.Guard(t.Context(), tx, l); err != nil {
				return err
			}
			if l.Shared() != shared {
				return errors.New("it does not know what it is")
			}
			return nil
		},
		"enter": func(l lock, _ bool) error {
			again, err := client.Lock(l.Context(), "n", dblock.Shared())
			if err != nil {
				return err
			}
			return again.Unlock(t.Context())
		},
		"record": func(l lock, _ bool) error { return l.Record(t.Context(), "note", "still here") },
	}
	for what, change := range changes {
		for then, follow := range next {
			t.Run(what+", then "+then, func(t *testing.T) {
				l, err := client.Lock(t.Context(), "n", change.options...)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				d.lost.Store(&cancel)
				require.ErrorIs(t, change.do(ctx, l), dblock.ErrUnavailable, "the lost answer")
				assert.NoError(t, follow(l, change.shared))
				assert.NoError(t, l.Unlock(t.Context()))
				again, err := other.TryLock(t.Context(), "n")
				require.NoError(t, err)
				assert.NoError(t, again.Unlock(t.Context()))
			})
		}
	}
}

// While its context lives, a change is asked for again until its outcome is known, with readers of
// the same client in the queue.
func TestAChangeWhoseAnswerWasLostIsAskedForAgain(t *testing.T) {
	d := &deaf{}
	client := hookedClient(t, dbtest.SQLite(t).SQL(t), d.hook)
	nobody := context.CancelFunc(func() {})
	for range 4 {
		l, err := client.Lock(t.Context(), "n")
		require.NoError(t, err)
		reader := make(chan error, 1)
		go func() {
			r, err := client.Lock(t.Context(), "n", dblock.Shared())
			if err == nil {
				err = r.Unlock(t.Context())
			}
			reader <- err
		}()
		for info, err := range inspect.New(client).Watch(t.Context(), "n") {
			require.NoError(t, err)
			if len(info.Waiters) == 1 {
				break
			}
		}
		d.lost.Store(&nobody)
		if err := l.Downgrade(t.Context()); err != nil || !l.Shared() {
			t.Fatalf("downgrade: %v", err)
		}
		require.NoError(t, <-reader)
		d.lost.Store(&nobody)
		if err := l.TryUpgrade(t.Context()); err != nil || l.Shared() {
			t.Fatalf("upgrade: %v", err)
		}
		d.lost.Store(&nobody)
		if token, err := inside.Of(l).Raise(t.Context(), l.Token()+7); err != nil || token != l.Token() {
			t.Fatalf("raise: %d, %v", token, err)
		}
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// hookedClient makes a client whose calls of the engine go through a hook.
func hookedClient(t *testing.T, db *sql.DB, hook fakedb.Hook, options ...dblock.Option) sqlClient {
	t.Helper()
	return newClient(t, fakedb.Through(sqlite.New(db), hook), options...)
}

func newClient(t *testing.T, engine dblock.Engine[*sql.Tx], options ...dblock.Option) *dblock.Client[*sql.Tx] {
	t.Helper()
	client, err := dblock.New(engine, options...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close(context.Background())) })
	return client
}
