package repo

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// evening is the number of lines that are read in one.
const evening = 4200

var readingRow = regexp.MustCompile("(?m)^\\| \\[`([^`]+)`\\]")

// Broken by a file of the list that has moved, and by a list that is longer than an evening.
func TestTheFilesToReadFirstAreAnEvening(t *testing.T) {
	page, err := os.ReadFile("docs/design.md")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(page), "## Read in this order\n")
	list, _, _ = strings.Cut(list, "\n## ")
	lines := 0
	for _, row := range readingRow.FindAllStringSubmatch(list, -1) {
		text, err := os.ReadFile(row[1])
		require.NoError(t, err)
		lines += bytes.Count(text, []byte("\n"))
	}
	if lines < evening/2 || lines > evening {
		t.Errorf("%d lines: want at most %d", lines, evening)
	}
}
