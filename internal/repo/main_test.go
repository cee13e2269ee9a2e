// Package repo has the tests that guard the repository: its layers, what its modules require, its
// documents, its style. They run in the repository's root.
package repo

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
