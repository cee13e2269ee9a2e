package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// The suite shows that the rights in docs/privileges are enough (internal/testing/suite/roles.go).
// Here each of them must be needed: there is a statement that uses it.
func TestEveryDocumentedRightIsUsedByAStatement(t *testing.T) {
	for engine, folders := range map[string][]string{
		"postgres": {"gen/postgresdb/*.go", "migrations/postgres/*_dblock.sql"}, // and the bodies of functions
		"mysql":    {"gen/mysqldb/*.go", "mysql/*.go"},                          // and what sqlc cannot read
	} {
		statements := literals(t, folders)
		text, err := os.ReadFile("docs/privileges/" + engine + "-app.sql")
		require.NoError(t, err)
		rights := 0
		for _, grant := range regexp.MustCompile(`(?m)^GRANT ([A-Z, ]+) ON ([a-z_., ]+) TO`).FindAllStringSubmatch(string(text), -1) {
			for table := range strings.SplitSeq(grant[2], ", ") {
				table = strings.TrimPrefix(table, "orders.")
				for right := range strings.SplitSeq(grant[1], ", ") {
					rights++
					if !uses(statements, right, table) {
						t.Errorf("%s: no statement needs %s on %s", engine, right, table)
					}
				}
			}
		}
		if rights < 40 {
			t.Errorf("%s: only %d rights were found", engine, rights)
		}
	}
}

// literals returns the texts between backquotes or dollar quotes, those between quotes that are
// statements, and the bodies of functions in SQL.
func literals(t *testing.T, globs []string) (texts []string) {
	t.Helper()
	literal := regexp.MustCompile("(?s)`([^`]*)`|\"((?:SELECT|INSERT|UPDATE|DELETE|WITH)[^\"]*)\"|" + `\$\$(.*?)\$\$|BEGIN ATOMIC(.*?)END;`)
	for _, glob := range globs {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", glob, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range literal.FindAllStringSubmatch(string(text), -1) {
				texts = append(texts, match[1]+match[2]+match[3]+match[4])
			}
		}
	}
	return texts
}

// uses reports whether a statement needs a right on a table. Whoever locks rows needs UPDATE.
func uses(statements []string, right, table string) bool {
	var needs *regexp.Regexp
	switch right {
	case "SELECT":
		needs = regexp.MustCompile(`\b` + table + `\b`)
	case "INSERT":
		needs = regexp.MustCompile(`INSERT\s+(IGNORE\s+)?INTO\s+` + table + `\b`)
	case "DELETE":
		needs = regexp.MustCompile(`DELETE\s+(\w+\s+)?FROM\s+` + table + `\b`)
	case "UPDATE":
		needs = regexp.MustCompile(`(?s)\bUPDATE\s+` + table + `\b|INSERT\s+(IGNORE\s+)?INTO\s+` + table +
			`\b.*\b(DO|KEY) UPDATE\b` +
			`|\b(FROM|JOIN)\s+` + table + `\b([^()]|\(([^()]|\([^()]*\))*\))*\bFOR (UPDATE|SHARE)\b`)
	default:
		return true // CONNECT, USAGE, EXECUTE
	}
	for _, statement := range statements {
		if needs.MatchString(statement) {
			return true
		}
	}
	return false
}
