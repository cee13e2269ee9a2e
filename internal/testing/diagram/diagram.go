// Package diagram compares the diagram of states in a package's comment with the package's code.
package diagram

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

var arrow = regexp.MustCompile(`(?m)^//\t    (\w+) --> (\w+): (\w+)$`)

// Of returns the arrows of a table of transitions.
func Of[S, E interface {
	comparable
	fmt.Stringer
}](transitions map[S]map[E]S) (arrows []string) {
	for from, events := range transitions {
		for e, to := range events {
			arrows = append(arrows, from.String()+" "+e.String()+" "+to.String())
		}
	}
	return arrows
}

// Compare fails the test unless the diagrams in doc.go have every arrow, and no other.
func Compare(t testing.TB, arrows []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var drawn []string
	for _, m := range arrow.FindAllStringSubmatch(string(text), -1) {
		drawn = append(drawn, m[1]+" "+m[3]+" "+m[2])
	}
	slices.Sort(drawn)
	slices.Sort(arrows)
	if !slices.Equal(drawn, arrows) {
		t.Errorf("the diagram has\n%q\nthe code has\n%q", drawn, arrows)
	}
}
