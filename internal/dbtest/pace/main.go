// Command pace measures how fast this machine and its servers are for tests, and prints a shell
// assignment that has tests scale their limits. On standard error it says in one line what is
// slowest. Arguments are kinds of servers, as package dbtest finds them.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slowest, all, err := dbtest.Pace(ctx, os.Args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "== times longer than on a quiet machine with two cores: %v; the slowest is: %s\n", all, slowest.What)
	fmt.Printf("export DBLOCK_TEST_SLOW=%.1f\n", slowest.Times())
}
