package repo

import (
	"os"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestTheFiguresOfComparedWerePrinted holds the figures of docs/compared.md to the output that
// bench/peers/run -page has kept, up to the ratios.
func TestTheFiguresOfComparedWerePrinted(t *testing.T) {
	page, err := os.ReadFile("docs/compared.md")
	require.NoError(t, err)
	printed, err := os.ReadFile("bench/peers/figures.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "<!-- bench/peers writes from here -->\n")
	figures, _, _ := strings.Cut(rest, "<!-- to here -->\n")
	ratios, _, _ := strings.Cut(string(printed), "\n| SIGKILL ")
	if figures == "" || figures != ratios {
		t.Errorf("docs/compared.md has other figures than bench/peers/figures.md: run bench/peers/run -page")
	}
}
