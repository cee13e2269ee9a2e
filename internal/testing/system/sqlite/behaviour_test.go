package sqlite_test

import (
	sqldriver "database/sql/driver"
	"testing"

	sqlitedriver "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/contracts"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/internal/transaction"
	"github.com/dblock-go/dblock/sqlite"
)

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "SQLite", Kind: suite.SQLite, Reach: suite.EachServer, Open: suite.OnSQL(sqlite.New),
		Usual:    &suite.SQLiteUsual,
		Settings: suite.SQLiteSettings, ReadOnly: suite.SQLiteReadOnly,
	})
}

func TestContracts(t *testing.T) {
	contracts.Run(t, dbtest.KindSQLite,
		func(t testing.TB, db dbtest.Database) driver.Backend { return inside.Of(sqlite.New(db.SQL(t))).Backend })
}

func init() {
	sqlitedriver.MustRegisterScalarFunction(suite.SQLiteAheadName, 1, func(_ *sqlitedriver.FunctionContext,
		args []sqldriver.Value) (sqldriver.Value, error) {
		return suite.SQLiteAhead(args[0].(string)), nil
	})
}

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
		Engine: inside.Of(sqlite.New(pool)).Backend, Statements: &statements, Unproven: transaction.ErrSwallowed,
		Count: map[string]int{},
		Spare: func(text string) bool { return !transaction.MustAct(text) },
	}
	swallowing.Compare(t, 1, 400, "WriteLock", "WriteQueue", "MakeLock", "AddPlace", "DropPlace", "PutShare",
		"DropShare", "AddEvent", "OpenSession", "OpenHeartbeat")
}
