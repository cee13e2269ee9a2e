// Package ncruces runs the behaviour suite with ncruces/go-sqlite3, which is SQLite in WebAssembly.
package ncruces

import (
	"os"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) {
	dbtest.SQLiteDriver = "sqlite3"
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "ncruces", Kind: enginetest.SQLite, Open: enginetest.OnSQL(sqlite.New),
		Usual:    &enginetest.SQLiteUsual,
		Settings: enginetest.SQLiteSettings, ReadOnly: enginetest.SQLiteReadOnly,
	})
}
