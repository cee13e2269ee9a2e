package mysql_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrations"
)

// A column that is added is written twice: for the servers in the text of a prepared statement, for
// sqlc in a comment.
func TestSqlcReadsTheColumnsThatTheServersGet(t *testing.T) {
	dir, err := migrations.FS(migrations.MySQL)
	require.NoError(t, err)
	names, err := fs.Glob(dir, "*.sql")
	require.NoError(t, err)
	var text []byte
	for _, name := range names {
		file, err := fs.ReadFile(dir, name)
		require.NoError(t, err)
		text = append(text, file...)
	}
	column := regexp.MustCompile(`ALTER TABLE \w+|ADD COLUMN (IF NOT EXISTS )?\w+ +\w+(\(\d+\))?`)
	columns := func(statements string) (list []string) {
		for _, statement := range regexp.MustCompile(statements).FindAllString(string(text), -1) {
			for _, column := range column.FindAllString(statement, -1) {
				column = strings.ReplaceAll(column, " IF NOT EXISTS", "")
				list = append(list, strings.Join(strings.Fields(column), " "))
			}
		}
		return list
	}
	servers, sqlc := columns(`(?s)'\s*ALTER TABLE[^']+ADD COLUMN[^']+'`), columns(`(?s)/\*T! .*?\*/`)
	if !slices.Equal(servers, sqlc) || len(sqlc) < 2 {
		t.Fatalf("the servers get %q\nsqlc reads %q", servers, sqlc)
	}
}
