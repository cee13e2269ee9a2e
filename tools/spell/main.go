// Command spell writes into gen the statements in the words of each server: scripts/generate runs
// it after sqlc.
package main

import (
	"fmt"
	"os"

	"github.com/dblock-go/dblock/tools/spelling"
)

func main() {
	if err := spelling.Write("../gen"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
