// Package client tests the client with an engine on SQLite, or around one: engines that answer
// late, lose answers, forget, or die at a moment that no database could be made to choose.
package client

import (
	"os"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
