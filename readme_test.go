package dblock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README's programs are the ones under examples/quickstart, to the letter.
func TestTheReadmeShowsCodeThatExists(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := ""
	for _, engine := range []string{"pgx", "mysql", "sqlite"} {
		program, err := os.ReadFile("examples/quickstart/" + engine + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		programs += string(program)
	}
	blocks := regexp.MustCompile("(?s)```go\n(\t.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d programs in the README, want 3", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(programs, string(block[1])) {
			t.Errorf("not in any of examples/quickstart:\n%s", block[1])
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(readme, -1) {
		if _, err := os.Stat(string(link[1])); err != nil {
			t.Errorf("the README links to %s: %v", link[1], err)
		}
	}
}
