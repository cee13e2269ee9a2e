package mysql_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/mysql"
)

// A process that is stopped between two statements is, for the server, a connection that says
// nothing.
func TestATransactionThatFallsSilentIsEndedByTheServer(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		a.take(t, "n")
		e := s.engine(t)
		defer e.Attend("", time.Second)()
		began := time.Now()
		err := mysql.StopBetween(t.Context(), e, "n", func() {
			s.exec(t, "UPDATE dblock_locks SET host = 'another' WHERE name = 'n'") // waits for the row
		})
		is(t, err, driver.ErrUnavailable)
		t.Logf("the row was free after %v", time.Since(began))
		assert.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE name = 'n' AND host = 'another'"), 1,
			"the row was not written")
	})
}
