package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// apply returns the file that m breaks, and its broken content. A text that is missing, or present
// more than once, is an error.
func (m mutant) apply(root string) (file string, broken []byte, err error) {
	file = filepath.Join(root, m.file)
	if strings.HasPrefix(m.file, "gen/") {
		if file, err = fileOfQuery(file, m.part); err != nil {
			return "", nil, err
		}
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	text := string(whole)
	for _, e := range m.edits {
		begin, end, err := m.place(text)
		if err != nil {
			return "", nil, err
		}
		from, to, err := find(text[begin:end], e.old)
		if err != nil {
			return "", nil, fmt.Errorf("%s %s: %w: %s", m.file, m.part, err, e.old)
		}
		text = text[:begin+from] + e.new + text[begin+to:]
	}
	if text == string(whole) {
		return "", nil, errors.New("it changes nothing")
	}
	return file, []byte(text), nil
}

// fileOfQuery returns the generated file of a folder that has the query.
func fileOfQuery(folder, query string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.sql.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "-- name: "+query+" :") {
			return file, err
		}
	}
	return "", errors.Join(err, fmt.Errorf("no query %q in %s", query, folder))
}

// place returns the beginning and the end of m's part of the file.
func (m mutant) place(text string) (begin, end int, err error) {
	if m.part == "" {
		return 0, len(text), nil
	}
	if strings.HasPrefix(m.file, "gen/") {
		begin = strings.Index(text, "-- name: "+m.part+" :")
		return begin, begin + strings.IndexByte(text[begin:], '`'), nil
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
		return 0, 0, errors.New("not found")
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
