package client

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/sqlite"
)

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	client := newClient(t, sqlite.New(db))
	if err := db.Close(); err != nil { // no statement can run
		t.Fatal(err)
	}
	for what, option := range map[string]dblock.LockOption{
		"a rest of 146 years":        dblock.MinHold(146 * 365 * 24 * time.Hour),
		"a rest of all time":         dblock.MinHold(math.MaxInt64),
		"a value that is not UTF-8":  dblock.Metadata(map[string]string{"key": "a\xff"}),
		"a key that is not UTF-8":    dblock.Metadata(map[string]string{"a\xff": "value"}),
		"a rest that has no length":  dblock.MinHold(0),
		"a rest that is over before": dblock.MinHold(-time.Second),
	} {
		assert.ErrorIs(t, assert.ErrOf(client.Lock(t.Context(), "n", option)), dblock.ErrInvalidOption, what)
	}
	var nothing func(context.Context, *dblock.Lock) error
	assert.ErrorIs(t, client.Do(t.Context(), "n", nothing), dblock.ErrInvalidOption, "Do without a function")
	var none context.Context
	assert.ErrorIs(t, client.Ping(none), dblock.ErrInvalidOption, "Ping without a context")
	assert.NoError(t, client.Close(t.Context()))
	assert.ErrorIs(t, client.Ping(t.Context()), dblock.ErrClosed, "Ping after Close")
}
