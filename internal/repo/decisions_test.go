package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// decisionHead is a title, and a line with the date and the status. A status names later decisions.
var (
	decisionHead = regexp.MustCompile(`^# (.+)\n\nAccepted \d{4}-\d\d-\d\d(, (?:amended|superseded) by .+)?\.\n\n`)
	laterOne     = regexp.MustCompile(`\[(\d{4})\]\((\d{4})-[a-z0-9-]+\.md\)`)
)

func TestDecisionsHaveADateAndAStatus(t *testing.T) {
	index, err := os.ReadFile("docs/decisions/README.md")
	require.NoError(t, err)
	files, err := filepath.Glob("docs/decisions/0*.md")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := filepath.Base(file)
		head := decisionHead.FindStringSubmatch(string(text))
		if head == nil {
			t.Errorf("%s: want %q at its beginning", name, decisionHead)
			continue
		}
		later := laterOne.FindAllStringSubmatch(head[2], -1)
		assert.Equal(t, len(later) > 0, head[2] != "", name, "names the decisions that changed it")
		for _, m := range later {
			assert.Equal(t, m[1] == m[2] && m[1] > name[:4], true, name, "was changed by a later one:", m[0])
		}
		line := "\n- [" + head[1] + "](" + name + ")\n"
		assert.Equal(t, strings.Contains(string(index), line), true, name, "is in the index:", line)
	}
	assert.Equal(t, strings.Count(string(index), "\n- ["), len(files), "lines of the index")
}

func TestADecisionWithoutAStatusIsFound(t *testing.T) {
	for text, want := range map[string]bool{
		"# A\n\nAccepted 2026-11-27.\n\n**Decision.**":                               true,
		"# A\n\nAccepted 2026-11-27, amended by [0002](0002-b.md).\n\n**Decision.**": true,
		"# A\n\n**Decision.**":                         false,
		"# A\n\nAccepted.\n\n**Decision.**":            false,
		"# A\n\nProposed 2026-11-27.\n\n**Decision.**": false,
	} {
		assert.Equal(t, decisionHead.MatchString(text), want, text)
	}
}
