//go:build unix

package fault

import (
	"flag"
	"os"
	"strconv"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/dbtest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(actorVariable); text != "" {
		os.Exit(act(text, os.Stdin, os.Stdout))
	}
	// Each has several processes that work. More of them at once take longer than one after the
	// other: heartbeats come too late, what is cut off connects anew, and connecting is the dearest
	// of all.
	if err := flag.Set("test.parallel", strconv.Itoa(dbtest.AtOnce(2))); err != nil {
		panic(err)
	}
	os.Exit(dbtest.Run(m))
}
