package dbtest_test

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
