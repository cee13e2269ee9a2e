package repo

import (
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// The programs of a page, which begin with a tab or a package clause, are excerpts of files that
// are compiled, to the letter.
func TestTheReadmeShowsCodeThatExists(t *testing.T) {
	for page, c := range map[string]struct {
		code   string // patterns of files
		blocks int
	}{
		"README.md":   {"examples/quickstart/*/main.go", 1},
		"AGENTS.md":   {"example_test.go", 1},
		"docs/orm.md": {"examples/orm/*.go", 9},
		"docs/recipes.md": {
			"examples/httpserver/server.go examples/outbox/relay.go example_moves_test.go", 3,
		},
		"docs/elections.md":                     {"election/example_test.go", 2},
		"docs/scheduling.md":                    {"examples/cron/server.go examples/robfig/main.go", 2},
		"contrib/gocron/README.md":              {"contrib/gocron/example_test.go", 1},
		"docs/coming-from/redsync-redislock.md": {"examples/coming/redis.go", 2},
		"docs/coming-from/redisson.md":          {"examples/coming/redisson.go", 2},
		"docs/coming-from/shedlock.md":          {"examples/coming/shedlock.go", 2},
		"docs/coming-from/pglock.md":            {"examples/coming/pglock.go", 1},
		"docs/coming-from/etcd.md":              {"examples/coming/etcd.go", 2},
		"docs/coming-from/kubernetes.md":        {"examples/coming/kubernetes.go", 2},
		"docs/coming-from/advisory.md":          {"examples/coming/advisory.go", 2},
		"docs/coming-from/zookeeper.md":         {"examples/coming/zookeeper.go", 1},
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		var files []string
		for pattern := range strings.FieldsSeq(c.code) {
			found, err := filepath.Glob(pattern)
			require.NoError(t, err)
			files = append(files, found...)
		}
		programs := ""
		for _, file := range files {
			program, err := os.ReadFile(file)
			require.NoError(t, err)
			programs += string(program)
		}
		blocks := regexp.MustCompile("(?s)```go\n((?:\t|package ).*?)```").FindAllSubmatch(text, -1)
		require.Equal(t, len(blocks), c.blocks, "programs in", page)
		for _, block := range blocks {
			if !strings.Contains(programs, string(block[1])) {
				t.Errorf("%s: not in any of %s:\n%s", page, c.code, block[1])
			}
		}
	}
}

// TestTheCodeOfPagesIsGo formats each block of Go code. A block may be a file, declarations or
// statements, and … stands for code that is left out. A block that begins with a tab is an excerpt
// of a program.
func TestTheCodeOfPagesIsGo(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```go\n([^\t\n].*?)^```")
	err := filepath.WalkDir(".", func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		text, err := os.ReadFile(page)
		for _, block := range blocks.FindAllSubmatch(text, -1) {
			code := strings.ReplaceAll(string(block[1]), "…", "etc")
			formatted, err := format.Source([]byte(code))
			switch {
			case err != nil:
				t.Errorf("%s: %v:\n%s", page, err, block[1])
			case string(formatted) != code:
				t.Errorf("%s: gofmt writes:\n%s", page, formatted)
			}
		}
		return err
	})
	require.NoError(t, err)
}

// A page for users of another tool is read in some minutes, and found in the index.
func TestPagesForNewcomersAreShortAndListed(t *testing.T) {
	const folder, mostLines = "docs/coming-from/", 120
	pages, err := filepath.Glob(folder + "*.md")
	require.NoError(t, err)
	index, err := os.ReadFile(folder + "README.md")
	require.NoError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		if n := strings.Count(string(text), "\n"); n > mostLines {
			t.Errorf("%s has %d lines, more than %d", page, n, mostLines)
		}
		name := filepath.Base(page)
		if name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("%s is not in the index", page)
		}
	}
}

func TestEveryPageIsInTheIndex(t *testing.T) {
	const index = "docs/README.md"
	text, err := os.ReadFile(index)
	require.NoError(t, err)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/README.md", "*/README.md", "contrib/*/README.md",
		"cmd/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, page := range pages {
			link, err := filepath.Rel(filepath.Dir(index), page)
			require.NoError(t, err)
			if page != index && !strings.Contains(string(text), "("+filepath.ToSlash(link)+")") {
				t.Errorf("%s is not in %s", page, index)
			}
		}
	}
}

// A link names a file, a folder, or a heading of a page.
func TestPagesLinkToWhatIsThere(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)#: ]*[./A-Z][^)#: ]*)?(?:#([^) ]+))?\)`)
	err := filepath.WalkDir(".", func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" && page != "llms.txt" {
			return err
		}
		text, err := os.ReadFile(page)
		for _, link := range links.FindAllStringSubmatch(string(text), -1) {
			target, anchor := page, link[2]
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, which has no heading #%s", page, target, anchor)
			}
		}
		return err
	})
	require.NoError(t, err)
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(t *testing.T, page string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAll(text, nil)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(prose, -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return r
			}
			return -1
		}, strings.ToLower(string(heading[1]))))
	}
	return names
}
