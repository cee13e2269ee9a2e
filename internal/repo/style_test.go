package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// commentWidth is how many columns a comment may have, with tabs of four.
const commentWidth = 100

// docLines is how many lines the comment of a function may have.
const docLines = 25

func TestCommentsOfFunctionsFitOneScreen(t *testing.T) {
	set := token.NewFileSet()
	sources(t, func(path string, text []byte) {
		file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			if f, is := declaration.(*ast.FuncDecl); is && f.Doc != nil && len(f.Doc.List) > docLines {
				t.Errorf("%s: %d lines about %s: what concerns one engine goes to docs",
					set.Position(f.Pos()), len(f.Doc.List), f.Name)
			}
		}
	})
}

func TestCommentsAreNotWiderThanAPage(t *testing.T) {
	sources(t, func(path string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
			example := strings.HasPrefix(comment, "\t") // code, and a command with what it does
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if is && !example && width > commentWidth {
				t.Errorf("%s:%d: a comment of %d columns", path, i+1, width)
			}
		}
	})
}

// sources calls f for each file of Go that is written by hand.
func sources(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
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
		if err == nil {
			f(path, text)
		}
		return err
	})
	require.NoError(t, err)
}
