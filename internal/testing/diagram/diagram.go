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

// Compare fails the test unless the diagram in doc.go has every transition, and no other. name
// returns the name that the diagram has for a state.
func Compare[S comparable, E interface {
	comparable
	fmt.Stringer
}](t testing.TB, transitions map[S]map[E]S, name func(S) string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var drawn, coded []string
	for _, m := range arrow.FindAllStringSubmatch(string(text), -1) {
		drawn = append(drawn, m[1]+" "+m[3]+" "+m[2])
	}
	for from, events := range transitions {
		for e, to := range events {
			coded = append(coded, name(from)+" "+e.String()+" "+name(to))
		}
	}
	slices.Sort(drawn)
	slices.Sort(coded)
	if !slices.Equal(drawn, coded) {
		t.Errorf("the diagram has\n%q\nthe code has\n%q", drawn, coded)
	}
}
