package mysql_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/mysql"
)

// A name may have been lost and granted again since a listener heard of it: of that grant nobody
// has told it yet.
func TestAListenerMarksTheGrantsThatItKnowsAndNoLaterOne(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		a.pass(t, s, "n", b)
		var attempt string
		must(t, s.pool.QueryRow("SELECT attempt FROM dblock_locks").Scan(&attempt))
		for known, unseen := range map[string]int64{"an earlier one": 1, attempt: 0} {
			s.exec(t, "UPDATE dblock_locks SET unseen = 1")
			must(t, mysql.Acknowledge(t.Context(), a.Backend, b.session, map[string]string{known: "n"}))
			if n := s.number(t, "SELECT unseen FROM dblock_locks"); n != unseen {
				t.Errorf("unseen is %d after %q was marked, want %d", n, known, unseen)
			}
		}
	})
}

// The connection that was there before may be about to break: what waits beside it would be
// disturbed.
func TestAListenerWaitsBesideTheLatestConnectionOfHeartbeats(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		if s.Kind != dbtest.KindMariaDB {
			return // a listener sleeps there, and needs no lock
		}
		a := s.attending(t)
		lock := func() string {
			name, err := mysql.SleepLock(t.Context(), a.Backend)
			must(t, err)
			return name
		}
		old, err := a.Upkeep(t.Context(), a.session)
		must(t, err)
		first := lock()
		young, err := a.Upkeep(t.Context(), a.session)
		must(t, err)
		if lock() == first {
			t.Error("it waits beside the older of two connections")
		}
		must(t, young.Close())
		if lock() != first {
			t.Error("it waits beside a connection that is closed")
		}
		must(t, old.Close())
	})
}
