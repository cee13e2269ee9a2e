package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// foreignNames lists names that are of other products, in groups with a reason.
const foreignNames = "internal/repo/testdata/foreign.txt"

// mistaken are the files whose names prove nothing.
var mistaken = []string{foreignNames, "internal/repo/names_test.go"}

// TestPagesAndCommentsNameWhatExists finds each name in a page or a comment in the code.
func TestPagesAndCommentsNameWhatExists(t *testing.T) {
	c := readCode(t)
	list, err := os.ReadFile(foreignNames)
	require.NoError(t, err)
	needed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "\t") {
			for name := range strings.FieldsSeq(line) {
				_, twice := needed[name]
				assert.Equal(t, twice, false, foreignNames, name, "twice")
				needed[name] = false
			}
		}
	}
	for file, text := range c.pages {
		for _, name := range c.unknown(path.Dir(file), text) {
			if _, is := needed[name]; is {
				needed[name] = true
			} else {
				t.Errorf("%s: %s: not in the code", file, name)
			}
		}
	}
	for name, is := range needed {
		if !is {
			t.Errorf("%s: %s: no page needs it", foreignNames, name)
		}
	}
}

// Each of these texts has the mistake beside it, or none.
func TestAMistakenNameIsFound(t *testing.T) {
	c := readCode(t)
	for text, want := range map[string]string{
		"`connlock` keeps the connection":                 "connlock",
		"`LockTx(…, others...)` locks several":            "LockTx(…,others...)",
		"`LockTx(ctx, tx, names...)` locks several":       "",
		"`LockTx(ctx)` locks nothing":                     "LockTx(ctx)",
		"reads `NOW(6)`":                                  "NOW(6)",
		"reads `UTC_TIMESTAMP(6)`":                        "",
		"`dblock.WithFoo(1)`":                             "dblock.WithFoo",
		"`dblock.WithTTL(time.Second)`":                   "",
		"`client.Foo`":                                    "client.Foo",
		"`client.Guard`, `lock.Context().Err()`":          "",
		"`Lock.Renew` does it":                            "Lock.Renew",
		"`inspect.New(client).Lst(ctx)`":                  "Lst",
		"`internal/connlock/doc.go`":                      "internal/connlock/doc.go",
		"see `protocol/room.go` and `queries/ENGINE`":     "",
		"`dblock_locks.colour`":                           "dblock_locks.colour",
		"`SELECT * FROM dblock_queue_of_names`":           "dblock_queue_of_names",
		"`DBLOCK_TEST_COLOUR=1 go test`":                  "DBLOCK_TEST_COLOUR",
		"`scripts/soak -king ring`":                       "scripts/soak -king",
		"`scripts/soak -kind ring`":                       "",
		"`make coffee`":                                   "make coffee",
		"`make check`":                                    "",
		"`--contented`":                                   "--contented",
		"`a waiter that sleeps on the job…`":              "a waiter that sleeps on the job…",
		"```go\nclient.Foo(ctx)\n```":                     "client.Foo",
		"```sh\nscripts/test -tiems\n```":                 "scripts/test -tiems",
		"Then lockRowOfCoffee waits, see Removal.ByMagic": "Removal.ByMagic lockRowOfCoffee",
		"see internal/connlock for Removal.Guarded":       "internal/connlock",
	} {
		assert.Equal(t, strings.Join(c.unknown("docs", text), " "), want, text)
	}
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	span     = regexp.MustCompile("``.+?``|`(?:[^`\n]|\n[^`\n])+`") // a line may end in it
	link     = regexp.MustCompile(`\]\([^)]*\)|https?://\S+`)
	program  = regexp.MustCompile(`…?(?:\w*[a-z][A-Z]\w*|\w+_\w+)…?`) // camelCase, or snake_case
	dotted   = regexp.MustCompile(`…?[A-Za-z_]\w*…?`)
	selector = regexp.MustCompile(`\b([A-Za-z]\w*)\.([A-Za-z]\w*)`)
	filePath = regexp.MustCompile(`\.?[\w…*-]+(?:\.[a-z0-9…*]+)*(?:/[\w…*-]+(?:\.[a-z0-9…*]+)*)+|[\w…*-]+\.(?:go|sql|md|txt|yaml|mod|work)\b`)
	blank    = regexp.MustCompile(`[A-Z]+(_[A-Z]+)*|…`) // ENGINE, in a path
	call     = regexp.MustCompile(`\b[A-Z_]{2,}\([0-9]*\)`)
	column   = regexp.MustCompile(`\b(dblock_\w+)\.(\w+)`)
	flag     = regexp.MustCompile(`(?:^| )(--?[a-z][a-z-]*)`)
	pattern  = regexp.MustCompile(` -(run|bench|fuzz) '?\w+`)
	target   = regexp.MustCompile(`^make ([a-z-]+)`)
	sentence = regexp.MustCompile(`^[A-Za-z]+( [A-Za-z][a-z,'-]*){3,}…?$`)
)

// variables are those of which pages speak, with their types.
var variables = map[string]string{"client": "Client", "lock": "Lock", "locks": "Locks", "term": "Term",
	"elections": "Elections", "runner": "Runner"}

// unknown returns the names in a page or a comment that the code does not have.
func (c *code) unknown(folder, text string) (names []string) {
	text = fence.ReplaceAllStringFunc(text, func(block string) string {
		part := fence.FindStringSubmatch(block)
		switch part[1] {
		case "go":
			names = append(names, c.unknownMembers(part[2])...)
		case "sh":
			for line := range strings.Lines(part[2]) {
				names = append(names, c.unknownFlags(strings.TrimSpace(line))...)
			}
		}
		return ""
	})
	text = span.ReplaceAllStringFunc(text, func(quoted string) string {
		quoted = strings.Join(strings.Fields(strings.Trim(quoted, "`")), " ")
		names = append(names, c.unknownInSpan(folder, quoted)...)
		return "…"
	})
	names = append(names, c.unknownInProse(folder, link.ReplaceAllString(text, ""))...)
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func (c *code) unknownInProse(folder, text string) []string {
	names := c.unknownPaths(folder, text)
	text = filePath.ReplaceAllString(text, "")
	names = append(names, c.unknownMembers(text)...)
	return append(names, c.unknownWords(program.FindAllString(selector.ReplaceAllString(text, ""), -1))...)
}

// unknownInSpan returns what the code does not have of a text in backquotes.
func (c *code) unknownInSpan(folder, text string) (names []string) {
	if m := target.FindStringSubmatch(text); m != nil && !strings.Contains(c.text, "\n"+m[1]+":") ||
		sentence.MatchString(text) && !strings.Contains(c.text, strings.TrimSuffix(text, "…")) {
		return []string{text}
	}
	text = pattern.ReplaceAllString(text, "$0…")
	names = slices.Concat(c.unknownFlags(text), c.unknownSQL(text), c.unknownInProse(folder, text))
	if len(names) == 0 {
		names = c.unknownCalls(text)
	}
	if len(names) == 0 && !strings.Contains(text, " ") {
		text = flag.ReplaceAllString(filePath.ReplaceAllString(text, ""), "")
		names = c.unknownWords(dotted.FindAllString(text, -1))
	}
	return names
}

// unknownWords returns the words that are not in the code. … stands for any other end or beginning.
func (c *code) unknownWords(words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool {
		if begin, end, cut := strings.Cut(w, "…"); cut {
			for known := range c.words {
				if strings.HasPrefix(known, begin) && strings.HasSuffix(known, strings.Trim(end, "…")) {
					return true
				}
			}
		}
		return c.words[w] || c.words[strings.TrimSuffix(w, "s")] || token.IsKeyword(w)
	})
}

// unknownPaths returns the paths that begin in a folder of the repository, or end in the name of a
// kind of file, and do not exist.
func (c *code) unknownPaths(folder, text string) (names []string) {
	for _, p := range filePath.FindAllString(text, -1) {
		p = strings.TrimRight(p, ".")
		first, _, _ := strings.Cut(p, "/")
		_, err := os.Stat(first)
		if err != nil && path.Ext(p) == "" || c.paths[path.Join(folder, p)] || strings.Contains(c.text, p) {
			continue
		}
		pattern, found := blank.ReplaceAllString(p, "*"), false
		for known := range c.paths {
			is, _ := path.Match(pattern, known)
			found = found || is
		}
		if !found {
			names = append(names, p)
		}
	}
	return names
}

// unknownMembers returns the selectors of packages and types of the repository, or of variables
// that are called as a type is, which these do not have.
func (c *code) unknownMembers(text string) (names []string) {
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		left, variable := c.members[m[1]], c.members[variables[m[1]]]
		if len(left)+len(variable) > 0 && m[1]+m[2] != strings.ToLower(m[1]+m[2]) && !left[m[2]] && !variable[m[2]] &&
			!c.words[m[0]] {
			names = append(names, m[0])
		}
	}
	return names
}

// unknownCalls returns a call of a function with too many or too few arguments, or with a list of
// another name.
func (c *code) unknownCalls(text string) (names []string) {
	e, err := parser.ParseExpr(strings.ReplaceAll(text, "…", "etc"))
	if err != nil {
		return nil
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if called, is := n.(*ast.CallExpr); is {
			if s, is := called.Fun.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && c.members[x.Name] == nil && variables[x.Name] == "" {
					return true // of another product
				}
			}
			all := c.params[typeName(called.Fun)]
			fits := func(params *ast.FieldList) bool { return takes(params, called) }
			if len(all) > 0 && !slices.ContainsFunc(all, fits) {
				names = append(names, strings.ReplaceAll(text, " ", ""))
			}
		}
		return true
	})
	return names
}

// takes reports whether a function with these parameters can be called so.
func takes(params *ast.FieldList, called *ast.CallExpr) bool {
	n, variadic, last := params.NumFields(), false, ""
	if n > 0 {
		f := params.List[len(params.List)-1]
		_, variadic = f.Type.(*ast.Ellipsis)
		if len(f.Names) > 0 {
			last = f.Names[len(f.Names)-1].Name
		}
	}
	least, some := n, false
	if variadic {
		least--
	}
	for _, arg := range called.Args {
		if x, is := arg.(*ast.Ident); is && x.Name == "etc" {
			some = true
		}
	}
	if called.Ellipsis.IsValid() {
		x, is := called.Args[len(called.Args)-1].(*ast.Ident)
		return variadic && (!is || x.Name == last)
	}
	return (len(called.Args) >= least || some) && (len(called.Args) <= n || variadic)
}

// unknownSQL returns the columns that no table has, and the calls that no statement has.
func (c *code) unknownSQL(text string) (names []string) {
	for _, m := range column.FindAllStringSubmatch(text, -1) {
		const of = "COMMENT ON COLUMN "
		if strings.Contains(c.text, of+m[1]+".") && !strings.Contains(c.text, of+m[0]+" ") {
			names = append(names, m[0])
		}
	}
	for _, m := range call.FindAllString(text, -1) {
		if !strings.Contains(c.text, m) {
			names = append(names, m)
		}
	}
	return names
}

// unknownFlags returns the flags that a script does not know. A flag alone is one of any program.
func (c *code) unknownFlags(text string) (names []string) {
	command, _, _ := strings.Cut(text, " ")
	script := ""
	for file, content := range c.scripts {
		if strings.HasPrefix(file, command) { // scripts/soak clusters is scripts/soak-clusters
			script += content
		}
	}
	for _, m := range flag.FindAllStringSubmatch(text, -1) {
		switch {
		case c.scripts[command] != "" && !strings.Contains(script, m[1]):
			names = append(names, command+" "+m[1])
		case strings.HasPrefix(text, m[1]) && !strings.Contains(c.text, strings.TrimLeft(m[1], "-")):
			names = append(names, m[1])
		}
	}
	return names
}
