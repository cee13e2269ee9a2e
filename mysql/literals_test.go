package mysql_test

import (
	"context"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// What a server can prepare is shared by all its clients, and others may have taken it all.
func TestAServerThatPreparesNothing(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Own(t, kind).Empty(t)
			s := server{Database: db}
			s.pool = s.open(t, func(c *sqldriver.Config) { c.InterpolateParams = true })
			s.migrate(t)
			s.exec(t, "SET GLOBAL max_prepared_stmt_count = 0")
			for _, set := range settings {
				if (set.kind == "" || set.kind == kind) && set.name != "interpolateParams" {
					t.Run(set.name, func(t *testing.T) { s.lifeOfALock(t, s.apply(set.change)) })
				}
			}
			pool := s.open(t, nil)
			a, b := s.client(t, pool), s.client(t, s.open(t, nil))
			handOver(t, a, b, 4)
			l, err := a.Lock(t.Context(), "ü'\\", dblock.Metadata(map[string]string{"k": "ü'\\"}))
			require.NoError(t, err)
			tx, err := pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, a.Guard(t.Context(), tx, l))
			require.NoError(t, a.UnlockTx(t.Context(), tx, l))
			require.NoError(t, a.LockTx(t.Context(), tx, "another"))
			require.NoError(t, tx.Commit())
			require.NoError(t, a.Do(t.Context(), "ü'\\", func(context.Context, *dblock.Lock) error { return nil }))

			waiter := s.listenIn(t, s.open(t, nil), time.Hour)
			granter := s.actor(t)
			held := granter.take(t, "heard")
			attempt := waiter.enqueue(t, "heard")
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true)))
			waiter.hear(t, map[string]bool{attempt: true})
		})
	}
}
