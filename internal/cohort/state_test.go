package cohort

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

var diagramLine = regexp.MustCompile(`(?m)^//\t    (\w+) --> (\w+): (\w+)$`)

// The diagram in the package comment has every transition, and no other.
func TestEveryTransitionIsInTheDiagram(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, coded []string
	for _, m := range diagramLine.FindAllStringSubmatch(string(text), -1) {
		drawn = append(drawn, m[1]+" "+m[3]+" "+m[2])
	}
	for from, events := range transitions {
		for e, to := range events {
			coded = append(coded, from.String()+" "+e.String()+" "+to.String())
		}
	}
	slices.Sort(drawn)
	slices.Sort(coded)
	if !slices.Equal(drawn, coded) {
		t.Errorf("the diagram has\n%q\nthe code has\n%q", drawn, coded)
	}
}
