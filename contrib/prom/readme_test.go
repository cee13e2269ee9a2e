package dblockprom_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// row finds the metrics of README with their labels, and its alerts.
var row = regexp.MustCompile("(?m)^\\| `(dblock_\\w+|Dblock\\w+)` \\|([^|]*)\\|")

func TestReadmeHasEveryMetricAndEveryAlert(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	alerts, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	want := map[string]string{}
	for metric, labels := range expose(t) {
		metric = regexp.MustCompile(`_seconds_(bucket|sum|count)$`).ReplaceAllString(metric, "_seconds")
		own := slices.DeleteFunc(slices.Collect(maps.Keys(labels)),
			func(label string) bool { return label == "client" || label == "le" })
		want[metric] = fmt.Sprint(slices.Sorted(slices.Values(own)))
	}
	for _, a := range alert.FindAllSubmatch(alerts, -1) {
		want[string(a[1])] = ""
	}
	for _, r := range row.FindAllStringSubmatch(string(readme), -1) {
		labels, known := want[r[1]]
		got := strings.FieldsFunc(r[2], func(c rune) bool { return strings.ContainsRune(" `,", c) })
		slices.Sort(got)
		if !known || labels != "" && fmt.Sprint(got) != labels {
			t.Errorf("README: %s has the labels %v, want %s (known: %v)", r[1], got, labels, known)
		}
		delete(want, r[1])
	}
	if len(want) > 0 {
		t.Errorf("README lacks %v", slices.Sorted(maps.Keys(want)))
	}
	for _, p := range readDashboard(t).Panels {
		if p.Type == "row" && !strings.Contains(strings.Join(strings.Fields(string(readme)), " "), p.Title) {
			t.Errorf("README lacks the row %q of the dashboard", p.Title)
		}
	}
}
