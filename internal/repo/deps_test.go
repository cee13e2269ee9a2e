package repo

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

const module = "github.com/dblock-go/dblock"

// What a build must not contain. A name stands for itself and for what is below it.
var (
	mysqlDriver  = []string{"github.com/go-sql-driver"}
	sqliteDriver = []string{"modernc.org", "github.com/mattn/go-sqlite3", "github.com/ncruces"}
	pgxDriver    = []string{"github.com/jackc", "github.com/lib/pq"}
	drivers      = slices.Concat(mysqlDriver, sqliteDriver, pgxDriver)
	engines      = []string{module + "/postgres", module + "/mysql", module + "/sqlite", module + "/gen"}
	testsOnly    = []string{module + "/internal/testing", "testing"}
	goose        = []string{"github.com/pressly", module + "/migrate"}
	anything     = []string{"*"} // outside the standard library and the package itself
)

type layer struct {
	name string
	not  [][]string
	but  []string // allowed all the same
}

// The layers. Arrows point down only: what a package may not reach, at whatever distance, in a
// build without tests. Every package of the workspace is in one row, by its own name or by that of
// a folder above it.
var layers = []layer{
	{name: "internal/protocol", not: [][]string{anything}},
	{name: "internal/driver", not: [][]string{anything}, but: below("internal/protocol")},
	{name: "engines", not: [][]string{anything},
		but: below("internal/driver", "internal/inside", "internal/protocol")},
	{name: "migrations", not: [][]string{anything}, but: below("internal/tables")},
	{name: "gen/postgresdb", not: [][]string{mysqlDriver, sqliteDriver, goose, testsOnly}},
	{name: "gen/mysqldb", not: [][]string{anything}},
	{name: "gen/sqlitedb", not: [][]string{anything}},
	{name: "gen/fences", not: [][]string{anything}},
	{name: "gen/versions", not: [][]string{anything}},
	{name: "postgres", not: [][]string{{module}, mysqlDriver, sqliteDriver, goose, testsOnly},
		but: below("engines", "internal/inside", "internal/driver", "internal/protocol", "internal/foreign",
			"internal/inspection", "internal/slots", "internal/contract", "gen/postgresdb", "internal/advisory",
			"internal/sessionlock", "internal/tell", "internal/connpool", "internal/pgserver", "internal/tables",
			"internal/transaction")},
	{name: "mysql", not: [][]string{{module}, pgxDriver, sqliteDriver, goose, testsOnly},
		but: below("engines", "internal/inside", "internal/driver", "internal/protocol", "internal/foreign",
			"internal/inspection", "internal/slots", "internal/contract", "gen/mysqldb", "internal/sessionlock",
			"internal/tell", "internal/connpool", "internal/mysqlserver", "internal/named", "internal/tables",
			"internal/transaction")},
	{name: "sqlite", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("engines", "internal/inside", "internal/driver", "internal/protocol", "internal/inspection",
			"internal/slots", "gen/sqlitedb", "internal/tables", "internal/transaction")},
	{name: "internal/client", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "internal/tx", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/backoff", "internal/clock", "internal/coalesce", "internal/contract",
			"internal/crash", "internal/deadlock", "internal/driver", "internal/ledger", "internal/outage",
			"internal/protocol", "internal/session", "internal/store", "internal/transaction", "internal/wait")},
	{name: "internal/ledger", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/backoff", "internal/clock", "internal/coalesce", "internal/contract",
			"internal/crash", "internal/deadlock", "internal/driver", "internal/outage", "internal/protocol",
			"internal/session", "internal/store", "internal/transaction", "internal/wait")},
	{name: "internal/store", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/backoff", "internal/clock", "internal/coalesce", "internal/contract",
			"internal/crash", "internal/deadlock", "internal/driver", "internal/outage", "internal/protocol",
			"internal/session", "internal/transaction", "internal/wait")},
	{name: "internal/session", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/backoff", "internal/driver", "internal/protocol", "internal/clock", "internal/crash",
			"internal/outage")},
	{name: "internal/connpool", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/driver", "internal/protocol")},
	{name: "internal/contract", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/driver", "internal/protocol")},
	{name: "internal/sessionlock", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/contract", "internal/tell")},
	{name: "internal/advisory", not: [][]string{{module}, mysqlDriver, sqliteDriver, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/foreign", "internal/contract",
			"internal/sessionlock", "internal/tell", "internal/pgserver", "internal/transaction")},
	{name: "internal/pgserver", not: [][]string{{module}, mysqlDriver, sqliteDriver, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/transaction")},
	{name: "internal/named", not: [][]string{{module}, pgxDriver, sqliteDriver, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/foreign", "internal/contract",
			"internal/sessionlock", "internal/tell", "internal/mysqlserver", "internal/transaction")},
	{name: "internal/mysqlserver", not: [][]string{{module}, pgxDriver, sqliteDriver, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/transaction")},
	{name: "internal/deadlock", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/driver", "internal/protocol", "internal/clock", "internal/outage")},
	{name: "internal/backoff", not: [][]string{anything}},
	{name: "internal/clock", not: [][]string{anything}},
	{name: "internal/coalesce", not: [][]string{anything}},
	{name: "internal/crash", not: [][]string{anything}, but: []string{"golang.org/x/sys"}},
	{name: "internal/foreign", not: [][]string{anything}, but: below("internal/driver", "internal/protocol")},
	{name: "internal/inspection", not: [][]string{anything}, but: below("internal/driver", "internal/protocol")},
	{name: "internal/history", not: [][]string{engines, drivers, goose, testsOnly, {module}},
		but: below("internal/store", "internal/backoff", "internal/clock", "internal/coalesce", "internal/contract",
			"internal/crash", "internal/deadlock", "internal/driver", "internal/outage", "internal/protocol",
			"internal/session", "internal/transaction", "internal/wait")},
	{name: "internal/operate", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "internal/inside", not: [][]string{anything}},
	{name: "internal/slots", not: [][]string{anything}, but: below("internal/driver", "internal/protocol")},
	{name: "internal/page", not: [][]string{anything}},
	{name: "internal/outage", not: [][]string{anything}},
	{name: "internal/tell", not: [][]string{anything}},
	{name: "internal/tables", not: [][]string{anything}},
	{name: "internal/wait", not: [][]string{{module}, drivers, goose, testsOnly},
		but: below("internal/backoff", "internal/driver", "internal/protocol", "internal/clock",
			"internal/outage")},
	// A transaction of any driver, in an application that may have another: these see drivers by
	// reflection.
	{name: "internal/transaction", not: [][]string{anything}, but: below("internal/driver", "internal/protocol")},
	{name: "fence", not: [][]string{anything},
		but: below("internal/driver", "internal/protocol", "internal/transaction", "gen/fences")},
	{name: "optimistic", not: [][]string{anything},
		but: below("internal/driver", "internal/protocol", "internal/transaction", "gen/versions")},
	{name: "observe", not: [][]string{anything},
		but: below("internal/contract", "internal/driver", "internal/protocol")},
	{name: "jobs", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "inspect", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "reaper", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "election", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "quorum", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "dblocktest", not: [][]string{engines, drivers, goose, testsOnly},
		but: append(below("sqlite", "gen/sqlitedb"), "testing")},
	{name: "dblockweb", not: [][]string{engines, drivers, goose, testsOnly}},
	{name: "migrate/migratepgx", not: [][]string{mysqlDriver, sqliteDriver, engines, testsOnly}},
	{name: "migrate", not: [][]string{{module}, drivers, testsOnly},
		but: below("migrations", "internal/driver", "internal/protocol", "internal/tables",
			"internal/transaction")},
	{name: "", not: [][]string{engines, drivers, goose, testsOnly}},
	// Modules of their own, which go.work ties to this one. What they require is theirs.
	{name: "contrib", not: [][]string{testsOnly}},
	{name: "cmd", not: [][]string{testsOnly}},
	{name: "examples", not: [][]string{testsOnly}},
	{name: "bench"},
	{name: "internal/testing/system"},
	// What only tests import.
	{name: "internal/testing/dbtest", not: [][]string{engines, sqliteDriver}},
	{name: "internal/testing/program", not: [][]string{{module}, drivers, goose},
		but: below("internal/testing/assert", "internal/testing/require")},
	{name: "internal/testing/txtest", not: [][]string{engines, sqliteDriver}},
	{name: "internal/memory", not: [][]string{{module}, drivers, goose},
		but: below("internal/clock", "internal/driver", "internal/inspection", "internal/protocol", "internal/slots")},
	{name: "internal/testing/swallow", not: [][]string{anything}},
	{name: "internal/testing/oracle", not: [][]string{engines, drivers, goose}},
	{name: "internal/testing/contracts", not: [][]string{engines, sqliteDriver}},
	{name: "internal/testing/drivertest", not: [][]string{{module}},
		but: below("internal/driver", "internal/protocol")},
	{name: "internal/testing/fakedb", not: [][]string{{module}, drivers, goose},
		but: below("engines", "internal/clock", "internal/driver", "internal/inside", "internal/inspection",
			"internal/memory", "internal/protocol", "internal/slots")},
	{name: "internal/testing/suite", not: [][]string{engines, sqliteDriver}, but: below("gen/fences", "gen/versions")},
	{name: "internal/testing/assert", not: [][]string{anything}},
	{name: "internal/testing/require", not: [][]string{anything}, but: below("internal/testing/assert")},
	{name: "internal/testing/diagram", not: [][]string{anything},
		but: below("internal/testing/assert", "internal/testing/require")},
	{name: "internal/testing/example", not: [][]string{anything}},
	{name: "internal/testing/leak", not: [][]string{anything}},
	{name: "internal/testing/runtest"},
	{name: "internal/repo", not: [][]string{anything}},
	{name: "internal/testing/testlog", not: [][]string{anything}},
}

func TestArrowsPointDownOnly(t *testing.T) {
	builds := packages(t)
	for pkg, deps := range builds {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			row := slices.IndexFunc(layers, func(l layer) bool {
				return l.name == name || l.name != "" && strings.HasPrefix(name, l.name+"/")
			})
			if row < 0 {
				t.Fatalf("package %s has no row in the table of layers", pkg)
			}
			for _, dep := range deps {
				if dep != pkg && !slices.ContainsFunc(layers[row].but, under(dep)) &&
					slices.ContainsFunc(slices.Concat(layers[row].not...), under(dep)) {
					t.Errorf("%s has %s in its build", pkg, dep)
				}
			}
		})
	}
}

// The packages that alone import goose, in a build without tests.
func TestMigrationsAloneImportGoose(t *testing.T) {
	importers := []string{module + "/migrate", module + "/contrib/goose"}
	for _, line := range list(t, `{{.ImportPath}} {{join .Imports " "}}`) {
		pkg, imports, _ := strings.Cut(line, " ")
		if !slices.Contains(importers, pkg) && slices.ContainsFunc(strings.Fields(imports),
			func(i string) bool { return under(i)(goose[0]) }) {
			t.Errorf("%s imports goose", pkg)
		}
	}
}

func packages(t *testing.T) map[string][]string {
	t.Helper()
	builds := make(map[string][]string)
	for _, line := range list(t, `{{.ImportPath}} {{join .Deps " "}}`) {
		pkg, deps, _ := strings.Cut(line, " ")
		builds[pkg] = strings.Fields(deps)
	}
	if len(builds) < 10 {
		t.Fatalf("go list knows %d packages of the workspace", len(builds))
	}
	return builds
}

func list(t *testing.T, format string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", format, module+"/...")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// under tells whether a dependency is one of a name's.
func under(dep string) func(name string) bool {
	return func(name string) bool {
		if name == "*" {
			first, _, _ := strings.Cut(dep, "/")
			return strings.Contains(first, ".")
		}
		return dep == name || strings.HasPrefix(dep, name+"/")
	}
}

func below(names ...string) []string {
	for i, name := range names {
		names[i] = path.Join(module, name)
	}
	return names
}
