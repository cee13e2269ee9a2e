package pgserver

import (
	"strings"
	"testing"
)

func TestAConnectionIsCalledWhatTheServerKeeps(t *testing.T) {
	for app, want := range map[string]string{
		"":                                "dblock",
		"orders":                          "dblock/orders",
		strings.Repeat("x", 80):           "dblock/" + strings.Repeat("x", 56),
		strings.Repeat("x", 55) + "ä":     "dblock/" + strings.Repeat("x", 55),
		strings.Repeat("x", 54) + "ä and": "dblock/" + strings.Repeat("x", 54) + "ä",
	} {
		if got := ConnectionName(app); got != want {
			t.Errorf("%q: %q, want %q", app, got, want)
		}
	}
}
