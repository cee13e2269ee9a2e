package sqlite_test

import (
	"database/sql/driver"
	"testing"

	sqlitedriver "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/sqlite"
)

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "SQLite", Kind: suite.SQLite, Open: suite.OnSQL(sqlite.New),
		Usual:    &suite.SQLiteUsual,
		Settings: suite.SQLiteSettings, ReadOnly: suite.SQLiteReadOnly,
	})
}

func init() {
	sqlitedriver.MustRegisterScalarFunction(suite.SQLiteAheadName, 1, func(_ *sqlitedriver.FunctionContext, args []driver.Value) (driver.Value, error) {
		return suite.SQLiteAhead(args[0].(string)), nil
	})
}
