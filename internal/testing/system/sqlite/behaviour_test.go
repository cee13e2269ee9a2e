package sqlite_test

import (
	sqldriver "database/sql/driver"
	"testing"

	sqlitedriver "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/contracts"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
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
		func(t testing.TB, db dbtest.Database) driver.Backend { return sqlite.New(db.SQL(t)).Backend })
}

func init() {
	sqlitedriver.MustRegisterScalarFunction(suite.SQLiteAheadName, 1, func(_ *sqlitedriver.FunctionContext,
		args []sqldriver.Value) (sqldriver.Value, error) {
		return suite.SQLiteAhead(args[0].(string)), nil
	})
}
