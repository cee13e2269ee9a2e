package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestHeartbeatsThatALockOfTheTableHeldUpMoveNoLeaseBack has a session's heartbeats wait for a lock
// of their table. The server lets them go on in any order, and each counts from when it was sent.
func TestHeartbeatsThatALockOfTheTableHeldUpMoveNoLeaseBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		back := 0
		for range soak(5, 200) {
			a, b := s.actor(t), s.actor(t)
			for _, of := range []actor{a, b} { // to prepare the statement takes the lock, too
				require.NoError(t, require.ErrOf(of.Beat(t.Context(), a.session, ttl)))
			}
			conn, err := s.pool.Conn(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), "LOCK TABLES dblock_heartbeats WRITE")
			require.NoError(t, err)
			beat := func(of actor, ttl time.Duration) <-chan outcome[bool] {
				beating := start(t, func(ctx context.Context) (bool, error) { return of.Beat(ctx, a.session, ttl) })
				s.heldUp(t, of)
				return beating
			}
			earlier := beat(a, 2*time.Hour)
			later := beat(b, 4*time.Hour)
			_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			for _, beating := range []<-chan outcome[bool]{earlier, later} {
				if got := <-beating; got.err != nil || !got.value {
					t.Fatalf("%+v", got)
				}
			}
			if s.number(t, "SELECT expires_at - (SELECT now_us FROM dblock_clock) FROM dblock_heartbeats WHERE "+
				"session_id = ?", a.session) < (3 * time.Hour).Microseconds() {
				back++
			}
			require.NoError(t, a.pool.Close())
			require.NoError(t, b.pool.Close())
		}
		if back > 0 {
			t.Errorf("the end of the lease moved back %d times", back)
		}
	})
}

// heldUp waits until a statement of the actor's waits for a lock of a table.
func (s server) heldUp(t *testing.T, a actor) {
	t.Helper()
	eventually(t, "the statement to wait for its table", func() bool {
		return s.number(t, "SELECT COUNT(*) FROM "+s.Processes()+" WHERE id = ? AND state LIKE '%metadata lock%'",
			a.conn) == 1
	})
}
