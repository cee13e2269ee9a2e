package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by an Extend that does not lock the name's row, or does not ask for the token.
func TestAnExtensionThatWaitedFindsTheLockOfTheNext(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for name, r := range map[string]protocol.Request{"whole": a.request("whole"), "shared": a.reader("shared")} {
			r.Lease = time.Minute
			grant, taken, err := drivertest.Take(t.Context(), a, r)
			if err != nil || !taken {
				t.Fatal(taken, err)
			}
			held := protocol.Held{Name: name, Session: a.session, Token: grant.Token, Shared: r.Units > 0}
			taking := s.transaction(t, "UPDATE dblock_locks SET token = token + 1, first_token = token, last_token "+
				"= token WHERE name = ?", name)
			_, err = taking.Exec("UPDATE dblock_shares SET token = token + 1 WHERE name = ?", name)
			require.NoError(t, err)
			extending := start(t, func(ctx context.Context) (time.Duration, error) {
				return a.extend(ctx, held, time.Hour)
			})
			s.blocked(t, a)
			require.NoError(t, taking.Commit())
			got := <-extending
			is(t, got.err, driver.ErrNotHeld)
			if left := a.look(t, name).Holder.Left; left > 2*time.Minute {
				t.Errorf("%s: the next has %v left", name, left)
			}
			held.Token++
			if left, err := a.extend(t.Context(), held, time.Hour); err != nil || left != time.Hour {
				t.Errorf("%s: %v left, %v", name, left, err)
			}
		}
	})
}

// Without the clock being read after the row was locked, a lease that ended meanwhile goes on.
func TestALeaseThatEndsWhileItsExtensionWaitsIsOver(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		r := a.request("n")
		r.Lease = time.Minute
		grant, taken, err := drivertest.Take(t.Context(), a, r)
		if err != nil || !taken {
			t.Fatal(taken, err)
		}
		ending := s.transaction(t, "UPDATE dblock_locks SET expires_at = (SELECT now_us FROM dblock_clock) + 1 "+
			"WHERE name = 'n'")
		extending := start(t, func(ctx context.Context) (time.Duration, error) {
			return a.extend(ctx, protocol.Held{Name: "n", Session: a.session, Token: grant.Token}, time.Hour)
		})
		s.blocked(t, a)
		require.NoError(t, ending.Commit())
		is(t, (<-extending).err, driver.ErrNotHeld)
	})
}
