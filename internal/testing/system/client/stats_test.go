package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

func TestAPingOpensNoSession(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	client := newClient(t, sqlite.New(db))
	require.NoError(t, client.Ping(t.Context()))
	var sessions int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_sessions").Scan(&sessions); err != nil ||
		sessions != 0 {
		t.Errorf("%d sessions, %v", sessions, err)
	}
	assert.Equal(t, client.Stats(), (dblock.Stats{}), "before the first lock")
	var none context.Context
	assert.ErrorIs(t, client.Ping(none), dblock.ErrInvalidOption, "without a context")
	require.NoError(t, client.Close(t.Context()))
	assert.ErrorIs(t, client.Ping(t.Context()), dblock.ErrClosed, "after Close")
}

func TestStatsCountTheEventsThatWereDropped(t *testing.T) {
	client := hookedClient(t, dbtest.SQLite(t).SQL(t), func(ctx context.Context, c *fakedb.Call) error {
		if c.Method == "Record" {
			return errors.New("no space left")
		}
		return c.Do(ctx)
	}, dblock.WithEvents())
	for end := time.Now().Add(10 * time.Second); client.Stats().EventsDropped < 4; {
		l, err := client.Lock(t.Context(), "n")
		require.NoError(t, err)
		if err := l.Unlock(t.Context()); err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", client.Stats(), err)
		}
	}
}
