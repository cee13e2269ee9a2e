package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a client that takes the last connections of a pool, so that every query of the
// application hangs.
func TestASecondClientThatWouldTakeTheLastConnectionsIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		open func(*testing.T, dbtest.Database) *sql.DB
		want error
		says string
	}{
		"a pool of 4": {func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 4) },
			dblock.ErrConfig, "the pool allows 4 connections, and the 2 clients"},
		"a pgxpool of four": {func(t *testing.T, db dbtest.Database) *sql.DB { return overPgxPool(t, db, 0) },
			dblock.ErrUnavailable, "of the 3 that a client needs"},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Postgres(t)
			pool := c.open(t, db)
			open := func() *dblock.Client[*sql.Tx] {
				c, err := dblock.New(NewSQL(pool), dblock.WithTTL(dbtest.Scale(4*time.Second)))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close(context.Background()) })
				return c
			}
			first, second := open(), open()
			held, err := first.Lock(t.Context(), "n")
			require.NoError(t, err)
			for deadline := time.Now().Add(patience()); pool.Stats().InUse < 2; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the first client does not keep its connections")
				}
			}
			require.NoError(t, held.Detach(t.Context(), time.Minute), "Detach needs no more connections")
			held, err = first.Resume(t.Context(), "n", held.Token())
			require.NoError(t, err)
			_, err = second.Lock(t.Context(), "m")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the second client: %v", err)
			}
			var one int
			assert.NoError(t, pool.QueryRowContext(t.Context(), "SELECT 1").Scan(&one), "the application")
			assert.NoError(t, held.Unlock(t.Context()))
			assert.NoError(t, first.Close(t.Context()))
			assert.NoError(t, assert.ErrOf(second.Lock(t.Context(), "m")), "once the first is closed")
		})
	}
}
