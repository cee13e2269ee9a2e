package faulttest

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(actorVariable); text != "" {
		os.Exit(act(text, os.Stdin, os.Stdout))
	}
	// Scenarios wait for leases to end, mostly: more of them go on one core than tests that work.
	if err := flag.Set("test.parallel", strconv.Itoa(dbtest.AtOnce(5))); err != nil {
		panic(err)
	}
	os.Exit(dbtest.Run(m))
}
