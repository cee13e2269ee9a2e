package mysql_test

import (
	"fmt"
	"strings"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/mysql"
)

// Whatever is asked, by the short ways and by the general way, the engine leaves the rows that
// package protocol leaves in memory.
func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.attending(t)
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { oracle.Compare(t, oracle.WakesOnly{Backend: a}, seed, 100) })
		}
	})
}

// A statement that the server answers without having done anything costs a try, whichever it is:
// nothing is done by halves, and nothing is believed that was not read.
func TestAStatementThatDidNothingIsNotBelieved(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		config, err := sqldriver.ParseDSN(s.DSN)
		require.NoError(t, err)
		connector, err := sqldriver.NewConnector(config)
		require.NoError(t, err)
		var statements swallow.Statements
		pool := statements.Pool(connector)
		t.Cleanup(func() { _ = pool.Close() })
		e := mysql.New(pool).Backend
		t.Cleanup(e.Attend("test", ttl))
		mysql.Patient(e, func() {}) // a ROLLBACK may take long on a busy machine
		swallowing := &oracle.Swallowing{Engine: e, Statements: &statements, Unproven: driver.ErrRetry,
			Count: map[string]int{}, Spare: func(text string) bool {
				// a batch passes over what it does not see
				return strings.Contains(text, "-- name: LockRows ") || strings.Contains(text, "-- name: RowsExist ")
			}}
		swallowing.Compare(t, soak(1, 20), 100,
			"WriteRow", "PutShare", "DropShare", "AddWaiter", "DropWaiter", "AddPlace", "NextWaiters", "Shares",
			"AddEvent", "TakeRows", "FreeLocks", "OpenSession", "OpenHeartbeat", "EndSession", "DropHeartbeat")
	})
}
