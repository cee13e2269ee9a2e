// Package ncruces runs the behaviour suite with ncruces/go-sqlite3, which is SQLite in WebAssembly.
package ncruces

import (
	"os"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) {
	dbtest.SQLiteDriver = "sqlite3"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "ncruces", Kind: suite.SQLite, Open: suite.OnSQL(sqlite.New),
		Usual:    &suite.SQLiteUsual,
		Settings: suite.SQLiteSettings, ReadOnly: suite.SQLiteReadOnly,
	})
}
