package transaction

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a statement whose kind is not where MustAct looks for it: nothing would prove its
// effect. On PostgreSQL the proof is written around the text behind the kind, and parameters are
// replaced by their numbers.
func TestTheKindOfAGeneratedStatementIsFound(t *testing.T) {
	statement := regexp.MustCompile("(?s)= `([^`]*)`")
	for folder, parameter := range map[string]string{"postgresdb": `\$1\b`, "mysqldb": `\?`, "sqlitedb": `\?1\b`} {
		files, err := filepath.Glob("../../gen/" + folder + "/*.sql.go")
		require.NoError(t, err)
		acts, parameters := 0, 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, found := range statement.FindAllSubmatch(text, -1) {
				if MustAct(string(found[1])) {
					acts++
				}
				if regexp.MustCompile(parameter).Match(found[1]) {
					parameters++
				}
			}
			kinds := regexp.MustCompile(`(?m)-- name: \w+ :exec$`).FindAll(text, -1)
			if acts -= len(kinds); acts != 0 {
				t.Errorf("%s: %d statements must act, and %d are seen to", file, len(kinds), len(kinds)+acts)
			}
		}
		if parameters == 0 {
			t.Errorf("%s: no statement has a parameter", folder)
		}
	}
}
