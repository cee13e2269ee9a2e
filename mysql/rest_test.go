package mysql_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A backup's FLUSH TABLES WITH READ LOCK waits for each statement that names a table, and what
// writes waits behind it. This is the same for the tables of one database.
func TestAListenerThatSleepsHoldsUpNoLockOfTheTables(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		waiter, attempt, grant, conn := s.asleep(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := conn.ExecContext(ctx,
			"FLUSH TABLES dblock_locks, dblock_shares, dblock_waiters, dblock_sessions, dblock_heartbeats WITH READ "+
				"LOCK")
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "UNLOCK TABLES")
		require.NoError(t, err)
		grant()
		waiter.hear(t, map[string]bool{attempt: true})
		is(t, waiter.end(t), context.Canceled)
	})
}

// A KILL that comes while the statement that sleeps is on its way hits nothing.
func TestAGrantJustBeforeTheSleepIsHeardOf(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		ready, goOn := make(chan struct{}), make(chan struct{})
		var asked atomic.Int32
		proxy.Watch(func(request []byte) {
			switch {
			case bytes.Contains(request, []byte("SELECT IF(GET_LOCK(")):
				close(ready)
				<-goOn
			case bytes.Contains(request, []byte("IS_USED_LOCK('dblock:")) && !bytes.Contains(request, []byte("KILL")):
				asked.Add(1)
			}
		})
		pool := server{s.Through(t, proxy), s.pool}.open(t, nil)
		waiter := s.listen(t, pool)
		granter, asker := s.actor(t), actor{Backend: s.engine(t), session: waiter.session}
		held := granter.take(t, "n")
		attempt := asker.enqueue(t, "n")
		soon(t, "the statement that sleeps", ready)
		eventually(t, "the other connection to wait for it", func() bool {
			return asked.Load() > 1 || asked.Load() > 0 && pool.Stats().InUse == s.listening() // or to have looked
		})
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true)))
		close(goOn)
		waiter.hear(t, map[string]bool{attempt: true})
		is(t, waiter.end(t), context.Canceled)
	})
}
