package dblocktest

import (
	"database/sql"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/suite"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// TestBehaviour runs the suite of the engines. What looks at the tables by SQL sees them in a file
// of SQLite: internal/testing/system/dblocktest runs it with a driver.
func TestBehaviour(t *testing.T) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("no driver of SQLite here: go test ./internal/testing/system/dblocktest")
	}
	var mu sync.Mutex
	databases := map[string]*database{} // by the file in which they are seen
	of := func(db dbtest.Database) *database {
		mu.Lock()
		defer mu.Unlock()
		if databases[db.DSN] == nil {
			databases[db.DSN] = newDatabase()
		}
		return databases[db.DSN]
	}
	suite.Run(t, suite.Wiring{
		Name: "memory", Kind: suite.SQLite,
		Open: suite.OnNothing(func(db dbtest.Database) dblock.Engine[*sql.Tx] {
			return engineOn[*sql.Tx](newLink(of(db)))
		}),
		Through: func(t testing.TB, db dbtest.Database, look *sql.DB, change bool, do func()) {
			of(db).through(t, look, change, do)
		},
	})
}
