package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/transaction"
)

// TestEveryQueryStandsForOneTransition holds the table in queries/README.md: each statement of each
// engine is in it once, and a name stands in one row, whatever the engine.
func TestEveryQueryStandsForOneTransition(t *testing.T) {
	text, err := os.ReadFile("queries/README.md")
	require.NoError(t, err)
	engines := []string{"postgres", "mysql", "sqlite"}
	listed := make(map[string]int)   // by engine and name
	rowOf := make(map[string]string) // by name
	names := regexp.MustCompile("`([A-Za-z]+)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != len(engines)+3 {
			continue // not of the table
		}
		transition := strings.TrimSpace(cells[1])
		for i, engine := range engines {
			for _, match := range names.FindAllStringSubmatch(cells[2+i], -1) {
				name := match[1]
				listed[engine+" "+name]++
				if other, ok := rowOf[name]; ok && other != transition {
					t.Errorf("%s stands for %q and for %q", name, other, transition)
				}
				rowOf[name] = transition
			}
		}
	}
	query := regexp.MustCompile(`(?m)^-- name: (\w+) `)
	for _, engine := range engines {
		files, err := filepath.Glob("queries/" + engine + "/*.sql")
		if err != nil || len(files) == 0 {
			t.Fatalf("no queries of %s: %v", engine, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range query.FindAllStringSubmatch(string(text), -1) {
				key := engine + " " + match[1]
				if n := listed[key]; n != 1 {
					t.Errorf("%s: %s is %d times in queries/README.md: want once", file, match[1], n)
				}
				delete(listed, key)
			}
		}
	}
	for key := range listed {
		t.Errorf("queries/README.md names a query that is not there: %s", key)
	}
}

// TestEveryWaitInATransactionIsATurn holds the limit of the statements that wait in a transaction
// of the application: in a locking SELECT it stands twice, once for each server.
func TestEveryWaitInATransactionIsATurn(t *testing.T) {
	mariaDB := fmt.Sprintf("/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = %g FOR */ ",
		transaction.Turn.Seconds())
	mysql := fmt.Sprintf("SELECT /*+ MAX_EXECUTION_TIME(%d) */ ", transaction.Turn.Milliseconds())
	for file, names := range map[string][]string{
		"queries/mysql/transactions.sql": {"AwaitRow"},
		"queries/fences/mysql.sql":       {"See", "Highest"},
		"queries/versions/mysql.sql":     {"Begin", "LockVersion"},
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range names {
			_, after, _ := strings.Cut(string(text), "-- name: "+name+" :")
			_, statement, _ := strings.Cut(after, "\n")
			if !strings.HasPrefix(statement, mariaDB+"INSERT ") && !strings.HasPrefix(statement, mariaDB+mysql) {
				t.Errorf("%s: %s does not wait for a turn", file, name)
			}
		}
	}
}

// TestEveryWriteProvesItself holds what proves a write. A statement of the kind :exec must do a row
// (transaction.MustAct). On MySQL and MariaDB an UPDATE that leaves a row as it was counts none,
// so that it has to set LAST_INSERT_ID, unless it changes the row in any case.
func TestEveryWriteProvesItself(t *testing.T) {
	changes := map[string]bool{"TouchGuard": true, "ReturnUnits": true}
	query := regexp.MustCompile(`(?s)-- name: (\w+) :exec\n(.*?);`)
	files, err := filepath.Glob("queries/mysql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range query.FindAllStringSubmatch(string(text), -1) {
			name, body := match[1], match[2]
			if strings.Contains(body, "UPDATE") && !strings.Contains(body, "LAST_INSERT_ID") && !changes[name] {
				t.Errorf("%s: %s may change nothing, and would be taken for a statement that was cut short: set "+
					"LAST_INSERT_ID, or make it :execrows and look at the answer", file, name)
			}
		}
	}
	if list := query.FindAllStringSubmatch("-- name: A :exec\nUPDATE a SET b = 1;", -1); len(list) != 1 {
		t.Fatal("the test finds no statements")
	}
}
