package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/dblock-go/dblock/tools/spelling"
)

// apply returns the files that m breaks, with their broken content. A text that is missing, or
// present more than once, is an error.
func (m mutant) apply(root string) (broken map[string]string, err error) {
	if strings.HasPrefix(m.file, "gen/") {
		return m.applyToQuery(root)
	}
	file := filepath.Join(root, m.file)
	whole, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := string(whole)
	for _, e := range m.edits {
		if text, err = m.replace(text, e); err != nil {
			return nil, err
		}
	}
	if text == string(whole) {
		return nil, errUnchanged
	}
	return map[string]string{file: text}, nil
}

var (
	errUnchanged = errors.New("it changes nothing")
	errNotFound  = errors.New("not found")
)

// applyToQuery breaks a statement as sqlc has written it, and in the words of each server. A text
// that is in the words of some servers only is broken there.
func (m mutant) applyToQuery(root string) (map[string]string, error) {
	folder := filepath.Join(root, m.file)
	files, err := spelling.Read(folder)
	if err != nil {
		return nil, err
	}
	broken := maps.Clone(files)
	var others []edit // that the statement as sqlc has written it does not have
	for _, e := range m.edits {
		switch err := m.breakIn(broken, e, func(file string) bool { return strings.HasSuffix(file, ".sql.go") }); {
		case errors.Is(err, errNotFound):
			others = append(others, e)
		case err != nil:
			return nil, err
		}
	}
	if broken, err = spelling.Spell(strings.TrimPrefix(m.file, "gen/"), broken); err != nil {
		return nil, err
	}
	for _, e := range others {
		if err := m.breakIn(broken, e, func(string) bool { return true }); err != nil {
			return nil, err
		}
	}
	changed := map[string]string{}
	for file, text := range broken {
		if text != files[file] {
			changed[filepath.Join(folder, file)] = text
		}
	}
	if len(changed) == 0 {
		return nil, errUnchanged
	}
	return changed, nil
}

// breakIn replaces a text in each file of some that has it in the statement.
func (m mutant) breakIn(files map[string]string, e edit, of func(file string) bool) error {
	there := false
	for file, text := range files {
		if !of(file) || !strings.Contains(text, "-- name: "+m.part+" :") {
			continue
		}
		switch text, err := m.replace(text, e); {
		case err == nil:
			files[file], there = text, true
		case !errors.Is(err, errNotFound):
			return err
		}
	}
	if !there {
		return fmt.Errorf("%s %s: %w: %s", m.file, m.part, errNotFound, e.old)
	}
	return nil
}

// replace replaces a text in m's part of a file.
func (m mutant) replace(text string, e edit) (string, error) {
	begin, end, err := m.place(text)
	if err != nil {
		return "", err
	}
	from, to, err := find(text[begin:end], e.old)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", m.file, m.part, err, e.old)
	}
	return text[:begin+from] + e.new + text[begin+to:], nil
}

// place returns the beginning and the end of m's part of the file.
func (m mutant) place(text string) (begin, end int, err error) {
	if m.part == "" {
		return 0, len(text), nil
	}
	if strings.HasPrefix(m.file, "gen/") {
		name := strings.Index(text, "-- name: "+m.part+" :")
		return strings.LastIndexByte(text[:name], '`') + 1, name + strings.IndexByte(text[name:], '`'), nil
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, "", text, 0)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == m.part {
			return files.Position(f.Pos()).Offset, files.Position(f.End()).Offset, nil
		}
	}
	return 0, 0, fmt.Errorf("no function %s in %s", m.part, m.file)
}

// nameOf returns f, or T.f for a method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// find returns the place of part in text, which must be unique. White space between words does not
// count.
func find(text, part string) (from, to int, err error) {
	folded, at := fold(text)
	wanted, _ := fold(part)
	switch strings.Count(folded, wanted) {
	case 0:
		return 0, 0, errNotFound
	case 1:
		i := strings.Index(folded, wanted)
		return at[i], at[i+len(wanted)-1] + 1, nil
	}
	return 0, 0, errors.New("found more than once")
}

// fold leaves out white space, except for one space between two words, and returns the place in
// text of each remaining byte.
func fold(text string) (folded string, at []int) {
	var b strings.Builder
	space, word := false, false // before this byte; whether the last one was part of a word
	for i := range len(text) {
		c := text[i]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			space = true
			continue
		}
		is := c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
		if space && word && is {
			b.WriteByte(' ')
			at = append(at, i)
		}
		b.WriteByte(c)
		at = append(at, i)
		space, word = false, is
	}
	return b.String(), at
}

// missing returns an error if m's test does not exist: the function in its package, or the
// sentence.
func (m mutant) missing(root string) error {
	parts := strings.Split(m.test, "/")
	function := regexp.MustCompile(`(?m)^func ` + parts[0] + `\(`)
	there, err := anyFile(filepath.Join(root, m.pkg, "*_test.go"), function)
	if err == nil && !there {
		err = fmt.Errorf("no %s in %s", parts[0], m.pkg)
	}
	if err != nil || parts[0] != "TestBehaviour" || len(parts) < 3 {
		return err
	}
	sentence := regexp.MustCompile(regexp.QuoteMeta(fmt.Sprintf("%q", parts[2])))
	there, err = anyFile(filepath.Join(root, "internal/testing/suite/*.go"), sentence)
	if err == nil && !there {
		err = fmt.Errorf("no sentence %q in internal/testing/suite", parts[2])
	}
	return err
}

func anyFile(pattern string, has *regexp.Regexp) (bool, error) {
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || has.Match(text) {
			return true, err
		}
	}
	return false, err
}
