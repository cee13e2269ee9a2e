package repo

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// The modules that build a server keep its versions.
func TestDependabotSeesEveryModule(t *testing.T) {
	text, err := os.ReadFile(".github/dependabot.yml")
	require.NoError(t, err)
	var listed, modules []string
	for _, match := range regexp.MustCompile(`(?m)^      - /(.*)$`).FindAllSubmatch(text, -1) {
		listed = append(listed, "/"+string(match[1]))
	}
	err = filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "go.mod" {
			modules = append(modules, path.Join("/", path.Dir(filepath.ToSlash(file))))
		}
		return err
	})
	require.NoError(t, err)
	modules = slices.DeleteFunc(modules, func(module string) bool {
		return module == "/internal/testing/tidb" || module == "/internal/testing/vitess"
	})
	slices.Sort(modules)
	require.Equal(t, strings.Join(listed, "\n"), strings.Join(modules, "\n"))
}

// A tag can be moved, a commit cannot.
func TestActionsArePinned(t *testing.T) {
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	uses := 0
	for _, workflow := range workflows {
		text, err := os.ReadFile(workflow)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`uses: *(.*)`).FindAllSubmatch(text, -1) {
			uses++
			if !regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).Match(match[1]) {
				t.Errorf("%s: %s: want a commit, and its version in a comment", workflow, match[1])
			}
		}
	}
	if uses == 0 {
		t.Error("no workflow uses an action")
	}
}
