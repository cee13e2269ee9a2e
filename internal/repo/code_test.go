package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// code is what the repository's code calls something.
type code struct {
	words   map[string]bool             // identifiers, and words of strings, SQL, scripts and settings
	text    string                      // SQL, scripts, settings, and the strings of Go code
	members map[string]map[string]bool  // of packages and types, by the name of the package or the type
	embeds  map[string][]string         // types in a type
	params  map[string][]*ast.FieldList // of functions and methods, by their name
	paths   map[string]bool             // of files and folders, each also without its first folders
	scripts map[string]string           // texts of scripts by their path
	pages   map[string]string           // texts of pages, and comments of files of code, by their path
}

var (
	word       = regexp.MustCompile(`[A-Za-z_]\w*`)
	sqlComment = regexp.MustCompile(`(?m)--.*$`)
	shComment  = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	directive  = regexp.MustCompile(`(?m)^(go:|nolint|-- name:|-- \+goose|#!).*$`)
	others     = regexp.MustCompile(`\.(ya?ml|mod|html|js)$|(^|/)(Makefile|mutants\.txt)$`)
)

// readCode reads all files that git knows or does not ignore, but those that are mistaken.
func readCode(t *testing.T) *code {
	t.Helper()
	c := &code{map[string]bool{}, "", map[string]map[string]bool{}, map[string][]string{},
		map[string][]*ast.FieldList{}, map[string]bool{}, map[string]string{}, map[string]string{}}
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard").Output()
	require.NoError(t, err)
	var text strings.Builder
	read := func(file, s string, comment *regexp.Regexp) {
		c.pages[file] = strings.Join(comment.FindAllString(directive.ReplaceAllString(s, ""), -1), "\n")
		s = comment.ReplaceAllString(s, "")
		text.WriteString("\n" + s)
		for _, w := range word.FindAllString(s, -1) {
			c.words[w] = true
		}
	}
	for file := range strings.FieldsSeq(string(out)) {
		content, err := os.ReadFile(file)
		if os.IsNotExist(err) || slices.Contains(mistaken, file) { // deleted, and not yet committed
			continue
		}
		require.NoError(t, err)
		for p := file; p != "."; p = path.Dir(p) {
			for end := p; end != ""; _, end, _ = strings.Cut(end, "/") {
				c.paths[end] = true
			}
		}
		switch s := string(content); {
		case path.Ext(file) == ".md" || file == "llms.txt":
			c.pages[file] = s
		case path.Ext(file) == ".go":
			c.readGo(t, file, content, &text)
		case path.Ext(file) == ".sql":
			read(file, s, sqlComment)
		case strings.HasPrefix(s, "#!"):
			c.scripts[file] = s
			read(file, s, shComment)
		case others.MatchString(file):
			read(file, s, shComment)
		}
	}
	c.text = text.String()
	for range 3 { // a type may embed a type that embeds another
		for name, all := range c.embeds {
			for _, embedded := range all {
				maps.Copy(c.members[name], c.members[embedded])
			}
		}
	}
	return c
}

// readGo adds the names of a file, and its strings to text.
func (c *code) readGo(t *testing.T, file string, content []byte, text *strings.Builder) {
	f, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	if !strings.HasPrefix(file, "gen/") {
		c.pages[file] = commentsOf(f)
	}
	pkg := strings.TrimSuffix(f.Name.Name, "_test")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.params[n.Name.Name] = append(c.params[n.Name.Name], n.Type.Params)
			if n.Recv != nil {
				c.member(typeName(n.Recv.List[0].Type), n.Name.Name)
			} else {
				c.member(pkg, n.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				c.member(pkg, name.Name)
			}
		case *ast.TypeSpec:
			c.member(pkg, n.Name.Name)
			fields := &ast.FieldList{List: []*ast.Field{{Type: n.Type}}} // an alias has what its type has
			switch u := n.Type.(type) {
			case *ast.StructType:
				fields = u.Fields
			case *ast.InterfaceType:
				fields = u.Methods
			}
			for _, field := range fields.List {
				for _, name := range field.Names {
					c.member(n.Name.Name, name.Name)
					if method, is := field.Type.(*ast.FuncType); is {
						c.params[name.Name] = append(c.params[name.Name], method.Params)
					}
				}
				if len(field.Names) == 0 {
					c.member(n.Name.Name, typeName(field.Type))
					c.embeds[n.Name.Name] = append(c.embeds[n.Name.Name], typeName(field.Type))
				}
			}
		case *ast.Ident:
			c.words[n.Name] = true
		case *ast.SelectorExpr:
			c.words[typeName(n.X)+"."+n.Sel.Name] = true
		case *ast.BasicLit:
			s, err := strconv.Unquote(n.Value)
			if err != nil || n.Kind != token.STRING {
				break
			}
			text.WriteString(s + "\n")
			for _, w := range word.FindAllString(s, -1) {
				if !strings.Contains(s, " ") || w != strings.ToLower(w) || strings.Contains(w, "_") { // no prose
					c.words[w] = true
				}
			}
		}
		return true
	})
}

// commentsOf returns the comments of a file, with examples as blocks of Go.
func commentsOf(f *ast.File) (text string) {
	for _, group := range f.Comments {
		for _, line := range group.List {
			said := directive.ReplaceAllString(strings.TrimPrefix(line.Text, "//"), "")
			if strings.HasPrefix(said, "\t") {
				said = "```go\n" + said + "\n```"
			}
			text += said + "\n"
		}
	}
	return text
}

func (c *code) member(of, name string) {
	if c.members[of] == nil {
		c.members[of] = map[string]bool{}
	}
	c.members[of][name] = true
}

// typeName returns the last name of an expression: of a type that without package and arguments.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}
