// Package fence tests fences in transactions of every kind, on every engine.
package fence

import (
	"os"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
