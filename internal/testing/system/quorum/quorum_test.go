// Package quorum tests quorums of databases of all kinds.
package quorum

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/quorum"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	realTTL        = time.Second
	realQuarantine = 2 * time.Second
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// onDatabase makes a node of a database of any kind. Its client is closed when the test has ended.
func onDatabase(t *testing.T, db dbtest.Database, ttl time.Duration) quorum.Node {
	t.Helper()
	if db.Kind == dbtest.KindPostgres {
		return quorum.On(newClient(t, postgres.New(db.Pool(t)), ttl))
	}
	return quorum.On(onSQL(t, db, ttl))
}

// onSQL makes a client through database/sql.
func onSQL(t *testing.T, db dbtest.Database, ttl time.Duration) *dblock.Client[*sql.Tx] {
	t.Helper()
	switch pool := db.SQL(t); db.Kind {
	case dbtest.KindPostgres:
		return newClient(t, postgres.NewSQL(pool), ttl)
	case dbtest.KindSQLite:
		return newClient(t, sqlite.New(pool), ttl)
	default:
		return newClient(t, mysql.New(pool), ttl)
	}
}

func newClient[TX any](t *testing.T, engine dblock.Engine[TX], ttl time.Duration) *dblock.Client[TX] {
	t.Helper()
	client, err := dblock.New(engine, dblock.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own has ended
		defer cancel()
		if err := client.Close(ctx); err != nil && !errors.Is(err, dblock.ErrUnavailable) {
			t.Error(err)
		}
	})
	return client
}

func TestEnginesMayDiffer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		nodes := []quorum.Node{onDatabase(t, db, realTTL), onDatabase(t, dbtest.SQLite(t), realTTL),
			onDatabase(t, dbtest.SQLite(t), realTTL)}
		c, err := quorum.New(nodes, quorum.WithQuarantine(realQuarantine))
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close(t.Context())) }()
		assert.ErrorIs(t, assert.ErrOf(c.TryLock(t.Context(), "")), dblock.ErrInvalidName, "no name")
		for until := time.Now().Add(20 * time.Second); ; { // a machine may be too busy to answer in a node's time limit
			_, err := c.TryLock(t.Context(), "n")
			if errors.Is(err, quorum.ErrQuarantined) {
				break
			}
			if !errors.Is(err, dblock.ErrUnavailable) || time.Now().After(until) {
				t.Fatalf("before Init: %v", err)
			}
		}
		require.NoError(t, quorum.Init(t.Context(), nodes...))
		var last int64
		for range 20 {
			l, err := c.Lock(t.Context(), "n") // at first it waits until the quarantine is over
			require.NoError(t, err)
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			if _, err := c.TryLock(l.Context(), "n"); !errors.Is(err, dblock.ErrNotAcquired) &&
				l.Context().Err() == nil {
				t.Errorf("under its own context: %v", err)
			}
			// a machine may be too busy for a short TTL
			if err := l.Unlock(l.Context()); err != nil && !errors.Is(err, dblock.ErrLost) {
				t.Fatal(err)
			}
		}
	})
}
