package sqlite_test

import (
	"testing"

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
