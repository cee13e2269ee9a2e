package sqlite_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/internal/transaction"
	"github.com/dblock-go/dblock/sqlite"
)

func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	for _, journal := range journals {
		f := newFixtureIn(t, journal)
		for seed := range uint64(soaked(2, 20)) {
			oracle.Compare(t, f, seed, 400)
		}
	}
}

// A write that the database answers without having done it is an error, whichever it is, and
// nothing is done by halves.
func TestAWriteThatDidNothingIsNotBelieved(t *testing.T) {
	var statements swallow.Statements
	f := newFixture(t)
	pool := statements.Pool(swallow.Connector(f.pool.Driver(), "file:"+f.path+"?"+unsynced))
	t.Cleanup(func() { _ = pool.Close() })
	swallowing := &oracle.Swallowing{
		Engine: sqlite.New(pool).Backend, Statements: &statements, Unproven: transaction.ErrSwallowed,
		Count: map[string]int{},
		Spare: func(text string) bool { return !transaction.MustAct(text) },
	}
	swallowing.Compare(t, 1, 400, "WriteLock", "WriteQueue", "MakeLock", "AddPlace", "DropPlace", "PutShare",
		"DropShare", "AddEvent", "OpenSession", "OpenHeartbeat")
}
