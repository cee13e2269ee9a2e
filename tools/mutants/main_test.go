package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant whose text has gone from its file breaks nothing, and proves nothing.
func TestEveryMutantStillApplies(t *testing.T) {
	mutants, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		switch {
		case err != nil:
			t.Errorf("%s: %v", m.rule, err)
		case !strings.Contains(string(text), m.old):
			t.Errorf("%s: %s does not contain %q any more", m.rule, m.file, m.old)
		case m.old == m.new:
			t.Errorf("%s: it changes nothing", m.rule)
		}
		if key := strings.Join([]string{m.file, m.old, m.new, m.pkg, m.test}, "|"); seen[key] {
			t.Errorf("%s: it is in the list twice", m.rule)
		} else {
			seen[key] = true
		}
	}
}
