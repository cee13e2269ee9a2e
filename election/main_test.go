package election_test

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
