package advisory

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A process is stopped when its waiter has become the first of the queue. PostgreSQL 13 has no
// idle_session_timeout: it plays no part here. Broken by keeping a place in the queue outside a
// transaction.
func TestAStoppedProcessLosesItsPlaceInTheAdvisoryQueue(t *testing.T) {
	s := newStage(t)
	stopped, err := server{pool: s.pool()}.Waiter(t.Context())
	require.NoError(t, err)
	defer stopped.Close()
	require.NoError(t, stopped.Wait(t.Context(), keysOf("n"), alone))
	conn := stopped.(*waiter).conn
	has, err := simple(t.Context(), conn,
		"SELECT current_setting('idle_in_transaction_session_timeout') || coalesce(' ' || "+
			"current_setting('idle_session_timeout', true), '')")
	if err != nil || has[0] != "10s 0" && has[0] != "10s" {
		t.Errorf("the timeouts are %q, %v", has, err)
	}
	behind := s.begin(s.client(), "n", alone, 1)
	require.NoError(t, require.ErrOf(simple(t.Context(), conn, "SET idle_in_transaction_session_timeout = '1ms'")))
	began := time.Now()
	s.unlock(s.granted(behind))
	t.Logf("it held up the next one for %v", time.Since(began))
}

// A wait that is cancelled, and one that is repeated on the same connection, leave no transaction
// open.
func TestAnAdvisoryWaiterLeavesNoTransactionOpen(t *testing.T) {
	s := newStage(t)
	w, err := server{pool: s.pool()}.Waiter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	conn := w.(*waiter).conn
	for range 2 {
		for range 2 { // as the first of the queue it may have to wait for the lock again
			require.NoError(t, w.Wait(t.Context(), keysOf("n"), alone))
			assert.Equal(t, conn.PgConn().TxStatus(), 'T', "a place in the queue with status")
		}
		require.NoError(t, w.Leave(t.Context(), keysOf("n")))
		assert.Equal(t, conn.PgConn().TxStatus(), 'I', "no place in the queue, and status")
	}
}
