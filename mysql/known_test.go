package mysql_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// A name may have been lost and granted again since a listener heard of it: of that grant nobody
// has told it yet.
func TestAListenerMarksTheGrantsThatItKnowsAndNoLaterOne(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		a.pass(t, s, "n", b)
		var attempt string
		require.NoError(t, s.pool.QueryRow("SELECT attempt FROM dblock_locks").Scan(&attempt))
		for known, unseen := range map[string]int64{"an earlier one": 1, attempt: 0} {
			s.exec(t, "UPDATE dblock_locks SET unseen = 1")
			require.NoError(t, mysql.Acknowledge(t.Context(), a.Backend, b.session, map[string]string{known: "n"}))
			if n := s.number(t, "SELECT unseen FROM dblock_locks"); n != unseen {
				t.Errorf("unseen is %d after %q was marked, want %d", n, known, unseen)
			}
		}
	})
}
