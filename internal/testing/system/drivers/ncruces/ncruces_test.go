// Package ncruces runs the behaviour suite with ncruces/go-sqlite3, which is SQLite in WebAssembly.
package ncruces

import (
	"os"
	"testing"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) {
	dbtest.SQLiteDriver = "sqlite3"
	sqlite3.AutoExtension(func(c *sqlite3.Conn) error {
		ahead := func(ctx sqlite3.Context, arg ...sqlite3.Value) {
			ctx.ResultInt64(suite.SQLiteAhead(arg[0].Text()))
		}
		return c.CreateFunction(suite.SQLiteAheadName, 1, sqlite3.INNOCUOUS, ahead)
	})
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "ncruces", Kind: suite.SQLite, Open: suite.OnSQL(sqlite.New),
		Usual:    &suite.SQLiteUsual,
		Settings: suite.SQLiteSettings, ReadOnly: suite.SQLiteReadOnly,
	})
}
