package client

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// No two files use each other, at whatever distance.
func TestFilesStandOnFilesBelowThem(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	pkg, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", compiled(t))}).Check("client", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]string{} // file, file, an example
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() || !ofPackage(object, pkg) {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		uses[from][to] = object.Name()
	}
	var path []string
	done := map[string]bool{}
	var visit func(file string)
	visit = func(file string) {
		if i := slices.Index(path, file); i >= 0 {
			text := ""
			for _, f := range append(slices.Clone(path[i:]), file) {
				if text != "" {
					text += " uses " + uses[lastOf(text)][f] + " of "
				}
				text += f
			}
			t.Errorf("a cycle: %s", text)
			return
		}
		if done[file] {
			return
		}
		path = append(path, file)
		for to := range uses[file] {
			visit(to)
		}
		path = path[:len(path)-1]
		done[file] = true
	}
	for file := range uses {
		visit(file)
	}
}

// compiled finds what the package imports, as the go command has compiled it.
func compiled(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
}

// ofPackage reports whether an object is one of the package's own: a name at its top, or a method.
// Fields stand where their type does.
func ofPackage(object types.Object, pkg *types.Package) bool {
	if object.Parent() == pkg.Scope() {
		return true
	}
	switch o := object.(type) {
	case *types.Func:
		return true
	case *types.Var:
		return o.IsField()
	}
	return false
}

// lastOf is the file that a text ends with.
func lastOf(text string) string {
	return text[strings.LastIndexByte(text, ' ')+1:]
}
