// Package election tests elections on real databases.
package election

import (
	"os"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
