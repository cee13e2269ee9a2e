package repo

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// commentWidth is how many columns a comment may have, with tabs of four.
const commentWidth = 100

// codeWidth is how many columns a line of code may have, with tabs of four. A line that a string in
// backquotes reaches may be longer: the string holds SQL, a command's help or text to compare.
const codeWidth = 120

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

// A comment that begins with a small letter begins with the name that it describes. Tests are
// described by what they show.
func TestACommentBeginsWithTheNameOfToday(t *testing.T) {
	set := token.NewFileSet()
	sources(t, func(path string, text []byte) {
		file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		check := func(comment *ast.CommentGroup, names ...*ast.Ident) {
			text := comment.Text()
			first := strings.TrimSuffix(word.FindString(text), "s")
			is := func(name *ast.Ident) bool {
				return strings.TrimSuffix(name.Name, "s") == first || strings.HasPrefix(name.Name, "Test")
			}
			if text != "" && 'a' <= text[0] && text[0] <= 'z' && len(names) > 0 && !slices.ContainsFunc(names, is) {
				t.Errorf("%s: the comment of %s begins with %s", set.Position(comment.Pos()), names[0], first)
			}
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name)
			case *ast.GenDecl:
				var all []*ast.Ident
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						check(s.Doc, s.Name)
						all = append(all, s.Name)
					case *ast.ValueSpec:
						check(s.Doc, s.Names...)
						all = append(all, s.Names...)
					}
				}
				if len(d.Specs) == 1 {
					check(d.Doc, all...)
				}
			}
		}
	})
}

func TestCommentsAreNotWiderThanAPage(t *testing.T) {
	sources(t, func(path string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
			example := strings.HasPrefix(comment, "\t") // code, and a command with what it does
			if is && !example && columns(line) > commentWidth {
				t.Errorf("%s:%d: a comment of %d columns", path, i+1, columns(line))
			}
		}
	})
}

func TestCodeIsNotWiderThanAScreen(t *testing.T) {
	sources(t, func(path string, text []byte) {
		exempt := rawLines(path, text)
		for i, line := range strings.Split(string(text), "\n") {
			comment := strings.HasPrefix(strings.TrimSpace(line), "//")
			if !comment && !exempt[i+1] && columns(line) > codeWidth {
				t.Errorf("%s:%d: code of %d columns", path, i+1, columns(line))
			}
		}
	})
}

// rawLines returns the numbers of the lines that strings in backquotes reach.
func rawLines(path string, text []byte) map[int]bool {
	file := token.NewFileSet().AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return lines
		case kind == token.STRING && literal[0] == '`':
			first := file.Line(pos)
			for i := range strings.Count(literal, "\n") + 1 {
				lines[first+i] = true
			}
		}
	}
}

// columns is the width of a line with tabs of four.
func columns(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
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
