package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// commentWidth is how many columns a comment may have, with tabs of four.
const commentWidth = 100

func TestCommentsAreNotWiderThanAPage(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "gen":
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
			example := strings.HasPrefix(comment, "\t") // code, and a command with what it does
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if is && !example && width > commentWidth {
				t.Errorf("%s:%d: a comment of %d columns", path, i+1, width)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
