package repo

import (
	"go/ast"
	"go/build"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// foreign is what the attempts and the honest program of another module have in common.
const foreign = `package foreign

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/reaper"
	"github.com/dblock-go/dblock/sqlite"
)

var (
	ctx    context.Context
	db     *sql.DB
	pool   *pgxpool.Pool
	client *dblock.Client[pgx.Tx]
	lock   *dblock.Lock
	locks  *dblock.Locks
)

// settings returns what an option that is a function would set.
func settings[C any](option func(c *C)) *C {
	c := new(C)
	option(c)
	return c
}

var (
	_ = settings[time.Time]
	_ = inspect.New[pgx.Tx]
	_ = mysql.New
	_ = postgres.New
	_ = reaper.Check
	_ = sqlite.New
)

func program() {
	PROGRAM
}
`

const honest = `
	tx, _ := pool.Begin(ctx)
	client, err := dblock.New(postgres.New(pool), dblock.WithTTL(time.Minute))
	lock, err = client.Lock(ctx, "n", dblock.Shared())
	err = client.Guard(ctx, tx, lock, locks.All()[0])
	_, err = inspect.New(client).Lock(ctx, lock.Name())
	_, err = reaper.Sweep(ctx, sqlite.New(db), reaper.Batch(1))
	var engine dblock.Engine[*sql.Tx] = mysql.New(db)
	_, _ = engine, err
`

func TestAnotherModuleCallsNothingInside(t *testing.T) {
	compile := foreignCompiler(t)
	require.NoError(t, compile(honest), "the honest program")
	for program, refusal := range map[string]string{
		// Calls of an engine, on the tables.
		`sqlite.New(db).EndSession(ctx, "s", true)`: "undefined",
		`mysql.New(db).Validate()`:                  "undefined",
		`postgres.New(pool).Run(ctx)`:               "undefined",
		`_ = sqlite.New(db).Backend`:                "undefined",
		`_ = postgres.New(pool).In`:                 "undefined",
		`_ = dblock.Engine[*sql.Tx]{Backend: nil}`:  "unknown field Backend",
		`_ = sqlite.New(db).engine`:                 "undefined",
		`var _ interface{ EndSession(context.Context, string, bool) error } = mysql.New(db)`: "missing method EndSession",
		`var _ = dblock.Engine[pgx.Tx](mysql.New(db))`:                                       "cannot convert",
		`reaper.Sweep(ctx, struct{}{})`:                                                      "does not match",

		// Calls of a client's inside.
		`client.Core()`: "undefined", `client.core()`: "undefined", `client.inside()`: "undefined",
		`_ = client.inner`: "undefined", `_ = client.value`: "undefined",
		`client.Sessions()`: "undefined", `client.Acquire(ctx, nil, true)`: "undefined",
		`client.contain(nil)`: "undefined",

		// Calls of a lock's inside.
		`lock.Entered()`: "undefined", `lock.Raise(ctx, 1)`: "undefined", `lock.Confirm(ctx)`: "undefined",
		`_ = lock.handle`: "undefined", `lock.inside()`: "undefined", `_ = locks.handles`: "undefined",
		`_ = dblock.Lock{nil}`: "implicit assignment to unexported field",

		// Uses of what an option sets.
		`settings(dblock.WithTTL(time.Second)).Closing = 0`:         "does not match",
		`settings(dblock.Shared()).Candidate = true`:                "does not match",
		`settings(postgres.AdvisoryTTL(time.Second)).TTL = 0`:       "does not match",
		`_ = dblock.Option(func(any) {})`:                           "cannot convert",
		`_ = dblock.LockOption(func(any) {})`:                       "cannot convert",
		`_ = append([]dblock.Option{}, func(struct{ TTL int }) {})`: "cannot use",
	} {
		if err := compile(program); err == nil || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: %v: want %q", program, err, refusal)
		}
	}
}

// A public type may be made of types of the inside, but gives none to its user.
func TestNoPublicTypeLeadsInside(t *testing.T) {
	imports := importing(t)
	for _, pkg := range publicPackages(t) {
		p, err := imports.Import(pkg)
		require.NoError(t, err)
		for _, leak := range leaks(p) {
			t.Errorf("%s: %s", pkg, leak)
		}
	}
}

// Each of these declarations is a way inside.
func TestAWayInsideIsFound(t *testing.T) {
	imports := importing(t)
	for declaration, want := range map[string]int{
		"type Client struct{ *client.Client }":                                     1,
		"type Client struct{ inner }; type inner = client.Client":                  1,
		"type Engine = driver.Engine[int]":                                         1,
		"type Engine struct{ driver.Engine[int] }":                                 1,
		"type Option func(*client.Config)":                                         1,
		"type Option = func(*client.Config)":                                       1,
		"func Sweep(b driver.Backend) {}":                                          1,
		"var Default map[string][]*client.Config":                                  1,
		"type Watch interface{ Each(func(driver.State) error) }":                   1,
		"func New() *hidden { return nil }; type hidden struct{ C client.Config }": 1,
		"type Page[T any] struct{}; func Read() Page[driver.State] { panic(0) }":   1,
		"type Lock client.Lock":                                                    0,
		"type Lock struct{ core *client.Lock }":                                    0,
		"type Lock struct{ core }; type core = inside.Inside[*client.Lock]":        0,
		"type Option = contract.Option":                                            0,
	} {
		source := "package open\nimport (\n"
		for _, name := range []string{"client", "contract", "driver", "inside"} {
			source += "\t\"" + module + "/internal/" + name + "\"\n"
		}
		source += ")\nvar (\n_ client.Config\n_ contract.Option\n_ driver.State\n_ inside.Inside[int]\n)\n"
		p, err := check(module+"/open", source+declaration, imports)
		require.NoError(t, err, declaration)
		if got := leaks(p); min(len(got), 1) != want {
			t.Errorf("%s: found %q", declaration, got)
		}
	}
}

// shared are the types of the inside that public pages show: engines do not import dblock, whose
// options and handles their own clients have too.
var shared = []string{"contract.Option", "contract.LocksOption", "contract.Handle", "sessionlock.Option"}

func TestNoPublicPageShowsATypeOfTheInside(t *testing.T) {
	for _, pkg := range publicPackages(t) {
		for _, name := range shown(t, pkg) {
			if !slices.Contains(shared, name) {
				t.Errorf("the page of %s shows %s", pkg, name)
			}
		}
	}
}

// shown returns the types of the inside that a package's page names.
func shown(t *testing.T, pkg string) (names []string) {
	t.Helper()
	p, err := build.Default.ImportDir(filepath.FromSlash(path.Join(".", strings.TrimPrefix(pkg, module))), 0)
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	page, err := doc.NewFromFiles(fset, files, pkg)
	require.NoError(t, err)
	look := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && slices.Contains(p.Imports, module+"/internal/"+x.Name) {
					names = append(names, x.Name+"."+s.Sel.Name)
				}
			}
			return true
		})
	}
	funcs := page.Funcs
	for _, typ := range page.Types {
		funcs = slices.Concat(funcs, typ.Funcs, typ.Methods)
		for _, spec := range typ.Decl.Specs {
			look(spec.(*ast.TypeSpec).Type)
		}
	}
	for _, f := range funcs {
		look(f.Decl.Type)
	}
	return names
}

// leaks returns what a package gives to its users that has methods or fields of the inside.
func leaks(p *types.Package) []string {
	w := walk{seen: map[types.Type]bool{}}
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			w.look(name, o.Type())
		}
	}
	return w.leaks
}

// walk goes where a user of a package can go.
type walk struct {
	seen  map[types.Type]bool
	leaks []string
}

func isInside(p *types.Package) bool {
	return p != nil && strings.HasPrefix(p.Path(), module+"/internal/")
}

func (w *walk) look(at string, typ types.Type) {
	switch t := types.Unalias(typ).(type) {
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			w.look(at, arg)
		}
		if p := t.Obj().Pkg(); p == nil || !under(p.Path())(module) || w.seen[t.Origin()] {
			return
		}
		if isInside(t.Obj().Pkg()) {
			if !opaque(t) {
				w.leaks = append(w.leaks, at+" has "+t.String())
			}
			return
		}
		w.seen[t.Origin()] = true
		w.look(at, t.Underlying())
		for method := range types.NewMethodSet(types.NewPointer(t)).Methods() {
			if !method.Obj().Exported() {
				continue
			}
			if isInside(method.Obj().Pkg()) {
				w.leaks = append(w.leaks, at+" has the method "+method.Obj().Name())
			}
			w.look(at+"."+method.Obj().Name(), method.Type())
		}
	case *types.Struct:
		w.fields(at, t)
	case *types.Interface:
		for method := range t.Methods() {
			if method.Exported() {
				w.look(at+"."+method.Name(), method.Type())
			}
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			w.look(at, v.Type())
		}
		for v := range t.Results().Variables() {
			w.look(at, v.Type())
		}
	case *types.Map:
		w.look(at, t.Key())
		w.look(at, t.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		w.look(at, t.Elem())
	}
}

// fields looks at the fields of a struct, also at those of what it embeds.
func (w *walk) fields(at string, s *types.Struct) {
	for f := range s.Fields() {
		if f.Exported() {
			w.look(at+"."+f.Name(), f.Type())
		} else if embedded, is := pointee(f.Type()).Underlying().(*types.Struct); is && f.Embedded() {
			for g := range embedded.Fields() {
				if g.Exported() && isInside(g.Pkg()) {
					w.leaks = append(w.leaks, at+" has the field "+g.Name())
				}
			}
			w.fields(at, embedded)
		}
	}
}

func pointee(t types.Type) types.Type {
	if p, is := types.Unalias(t).(*types.Pointer); is {
		return p.Elem()
	}
	return t
}

// opaque reports whether a type of the inside has nothing that its user can call, read or set.
func opaque(t *types.Named) bool {
	switch u := t.Underlying().(type) {
	case *types.Interface:
		for method := range u.Methods() {
			if method.Exported() {
				return false
			}
		}
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() || f.Embedded() {
				return false
			}
		}
	default:
		return false
	}
	for method := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if method.Obj().Exported() {
			return false
		}
	}
	return true
}

// foreignCompiler returns a function that compiles a program of another module.
func foreignCompiler(t *testing.T) func(program string) error {
	t.Helper()
	imports := importing(t)
	return func(program string) error {
		_, err := check("example.com/foreign", strings.Replace(foreign, "PROGRAM", program, 1), imports)
		return err
	}
}

func check(pkg, source string, imports types.Importer) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "program.go", source, 0)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: imports}
	return config.Check(pkg, fset, []*ast.File{f}, nil)
}

// importing reads what the compiler has exported of the public packages, and of what they import.
func importing(t *testing.T) types.Importer {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, publicPackages(t)...)
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[pkg] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) {
		return os.Open(files[pkg])
	})
}

// publicPackages are the packages of this module that others can import.
func publicPackages(t *testing.T) (public []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "./...").Output()
	require.NoError(t, err)
	for pkg := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(pkg, "/internal/") {
			public = append(public, pkg)
		}
	}
	assert.Equal(t, len(public) > 10, true, "there are public packages")
	return public
}
