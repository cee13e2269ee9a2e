package sqlite_test

import (
	"database/sql/driver"
	"testing"

	sqlitedriver "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/sqlite"
)

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "SQLite", Kind: enginetest.SQLite, Open: enginetest.OnSQL(sqlite.New),
		Usual:    &enginetest.SQLiteUsual,
		Settings: enginetest.SQLiteSettings, ReadOnly: enginetest.SQLiteReadOnly,
	})
}

func init() {
	sqlitedriver.MustRegisterScalarFunction(enginetest.SQLiteAheadName, 1, func(_ *sqlitedriver.FunctionContext, args []driver.Value) (driver.Value, error) {
		return enginetest.SQLiteAhead(args[0].(string)), nil
	})
}
