package pgserver

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAConnectionIsCalledWhatTheServerKeeps(t *testing.T) {
	for app, want := range map[string]string{
		"":                                "dblock",
		"orders":                          "dblock/orders",
		strings.Repeat("x", 80):           "dblock/" + strings.Repeat("x", 56),
		strings.Repeat("x", 55) + "ä":     "dblock/" + strings.Repeat("x", 55),
		strings.Repeat("x", 54) + "ä and": "dblock/" + strings.Repeat("x", 54) + "ä",
	} {
		assert.Equal(t, ConnectionName(app), want, app)
	}
}
