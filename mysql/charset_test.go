package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/mysql"
)

// with adds parameters of a DSN to a pool's own.
func (s server) with(t *testing.T, params string) func(*sqldriver.Config) {
	t.Helper()
	base, _, _ := strings.Cut(s.DSN, "?")
	config, err := sqldriver.ParseDSN(base + "?" + params)
	require.NoError(t, err)
	return func(c *sqldriver.Config) { *c = *config }
}

// A name that one pool has taken is not free for another, whatever character sets their connections
// have. A pool whose connections convert what is sent is refused.
func TestNoCharacterSetMakesTwoLocksOfOne(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		usual := s.actor(t)
		txtest.EachCharset(t, func(t *testing.T, params string) {
			e := inside.Of(mysql.New(s.open(t, s.with(t, params)))).Backend
			odd := actor{Backend: e, session: id()}
			err := odd.OpenSession(t.Context(), driver.Session{ID: odd.session, Host: "h", App: "test", TTL: ttl})
			if errors.Is(err, driver.ErrConfig) && strings.Contains(err.Error(), "character_set_connection") {
				return
			}
			require.NoError(t, err)
			for _, name := range []string{"plain " + params, "über " + params, "日😀 " + params} {
				usual.take(t, name)
				if _, taken, err := drivertest.Take(t.Context(), odd, odd.request(name)); err != nil || taken {
					t.Errorf("%s: taken twice: %v, %v", name, taken, err)
				}
			}
		})
	})
}

// The application sets another character set on a connection that it has borrowed from the pool.
func TestNoRowIsMadeUnderANameThatAConnectionHasChanged(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		usual, odd := s.actor(t), s.actor(t)
		usual.take(t, "über")
		_, err := odd.pool.Exec("SET character_set_connection = latin1")
		require.NoError(t, err)
		for _, mode := range []string{"TRADITIONAL", ""} {
			_, err = odd.pool.Exec("SET sql_mode = '" + mode + "'")
			require.NoError(t, err)
			_, taken, err := drivertest.Take(t.Context(), odd, odd.request("über"))
			if taken || !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(),
				"character_set_connection") {
				t.Errorf("%t, %v", taken, err)
			}
			r := odd.request("ü")
			r.Units, r.Of = 1, 2
			if _, taken, err = drivertest.Take(t.Context(), odd, r); taken || !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%t, %v", taken, err)
			}
		}
		assert.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_locks"), 1, "rows")
	})
}

// A transaction of the application's may be of a pool that the client knows nothing of.
func TestNoCharacterSetTouchesANameInATransaction(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		c := s.client(t, s.open(t, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		locked := map[string]*sql.Tx{}                                              // by the name
		open := func(params string) *sql.DB { return s.open(t, s.with(t, params)) } // until all have been tried
		txtest.EachCharset(t, func(t *testing.T, params string) {
			odd := open(params)
			for _, name := range []string{"plain " + params, "über " + params, "日😀 " + params} {
				for _, options := range [][]dblock.LockOption{nil, {dblock.Shared()}} {
					l, err := c.Lock(ctx, name, options...)
					require.NoError(t, err)
					tx, err := odd.BeginTx(ctx, nil)
					require.NoError(t, err)
					is(t, c.TryLockTx(ctx, tx, name), dblock.ErrNotAcquired)
					require.NoError(t, c.Guard(ctx, tx, l))
					require.NoError(t, c.UnlockTx(ctx, tx, l))
					require.NoError(t, tx.Commit())
					require.NoError(t, l.Unlock(ctx))
				}
				tx, err := odd.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, c.LockTx(ctx, tx, name))
				locked[name] = tx
			}
		})
		// TryLock looks for a while whether a transaction ends: all at once.
		var tries sync.WaitGroup
		for name := range locked {
			tries.Go(func() {
				if _, err := c.TryLock(ctx, name); !errors.Is(err, dblock.ErrNotAcquired) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		tries.Wait()
		for _, tx := range locked {
			require.NoError(t, tx.Rollback())
		}
	})
}
