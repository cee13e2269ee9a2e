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
)

// commentWidth is how many columns a comment may have, with tabs of four.
const commentWidth = 100

// docLines is how many lines the comment of a function of the root package may have.
const docLines = 25

func TestFunctionsOfTheRootAreDocumentedOnOneScreen(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if f, is := declaration.(*ast.FuncDecl); is && f.Doc != nil && len(f.Doc.List) > docLines {
				t.Errorf("%s: %d lines about %s: caveats of engines go to docs/transactions.md", set.Position(f.Pos()), len(f.Doc.List), f.Name)
			}
		}
	}
}

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
