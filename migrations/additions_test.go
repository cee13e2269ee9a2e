package migrations_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrations"
)

var engines = []migrations.Engine{migrations.Postgres, migrations.MySQL, migrations.SQLite}

var (
	comment  = regexp.MustCompile(`(?m)(--|//).*$`)
	takes    = regexp.MustCompile(`(?i)\b(DROP|RENAME|MODIFY|CHANGE|TRUNCATE)\b|\bALTER\s+COLUMN\b`)
	index    = regexp.MustCompile(`(?i)\bDROP INDEX (\w+);`)
	addition = regexp.MustCompile(`(?i)\bADD\s+(?:COLUMN\s+)?(\w+)\s+([^,;']*)`)
)

// faults are what keeps a migration from being one that older builds can live with, unless it says
// that they cannot.
func faults(version int, text string) (faults []string) {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	up = strings.Join(strings.Fields(comment.ReplaceAllString(up, "")), " ")
	says := fmt.Sprintf("UPDATE dblock_schema SET version = %d", version)
	if !strings.Contains(up, says) {
		return []string{"no " + says}
	}
	if strings.Contains(up, fmt.Sprintf("%s, usable_from = %d", says, version)) {
		return nil
	}
	if strings.Contains(up[strings.Index(up, says):], "usable_from") {
		faults = append(faults, "usable_from must become the migration's own version, or stay")
	}
	up = index.ReplaceAllStringFunc(up, func(drop string) string { // one that is made anew is still there
		if strings.Contains(up, "CREATE INDEX "+index.FindStringSubmatch(drop)[1]+" ON") {
			return ""
		}
		return drop
	})
	if word := takes.FindString(up); word != "" {
		faults = append(faults, word+" takes something away from older builds")
	}
	for _, add := range addition.FindAllStringSubmatch(up, -1) {
		definition := strings.ToUpper(add[2])
		if strings.Contains(definition, "NOT NULL") && !strings.Contains(definition, "DEFAULT") {
			faults = append(faults, add[1]+" wants a value, which older builds do not give")
		}
		if regexp.MustCompile(`(?i)^(UNIQUE|CHECK|FOREIGN|CONSTRAINT|PRIMARY)$`).MatchString(add[1]) ||
			strings.Contains(definition, "UNIQUE") {
			faults = append(faults, add[1]+" refuses what older builds write")
		}
	}
	return faults
}

// Tables serve at least two releases at once: a migration that an older build could not live with
// says so.
func TestMigrationsOnlyAdd(t *testing.T) {
	for _, engine := range engines {
		files, err := migrations.FS(engine)
		require.NoError(t, err)
		names, err := fs.Glob(files, "*.sql")
		if err != nil || len(names) != driver.SchemaVersion {
			t.Fatal(names, err)
		}
		for _, name := range names {
			number, _, _ := strings.Cut(name, "_")
			version, err := strconv.Atoi(number)
			require.NoError(t, err)
			text, err := fs.ReadFile(files, name)
			require.NoError(t, err)
			if version == 1 { // there is nothing to add to
				continue
			}
			for _, fault := range faults(version, string(text)) {
				t.Errorf("%s/%s: %s", engine, name, fault)
			}
		}
	}
}

func TestWhatAMigrationMustNotDo(t *testing.T) {
	const end = "UPDATE dblock_schema SET version = 9;\n-- +goose Down\nDROP TABLE a;"
	for text, fine := range map[string]bool{
		"ALTER TABLE a ADD COLUMN b integer;" + end:                                         true,
		"ALTER TABLE a ADD COLUMN b integer NOT NULL DEFAULT 0, ADD KEY a_b (b);" + end:     true,
		"-- Nobody may DROP this.\nCREATE TABLE b (c text UNIQUE);" + end:                   true,
		"ALTER TABLE a ADD COLUMN b integer NOT NULL;" + end:                                false,
		"ALTER TABLE a ADD COLUMN b integer DEFAULT 0, ADD COLUMN c bigint NOT NULL;" + end: false,
		"ALTER TABLE a ADD COLUMN b integer UNIQUE;" + end:                                  false,
		"ALTER TABLE a ADD CONSTRAINT a_b CHECK (b > 0);" + end:                             false,
		"DROP INDEX a_b;\nCREATE INDEX a_b ON a (b) WHERE b > 0;" + end:                     true,
		"DROP INDEX a_b;" + end:                                                                 false,
		"ALTER TABLE a\nDROP COLUMN b;" + end:                                                   false,
		"SET @ddl = 'ALTER TABLE a RENAME COLUMN b TO c';" + end:                                false,
		"ALTER TABLE a ALTER COLUMN b TYPE bigint;" + end:                                       false,
		"DROP VIEW a;" + end:                                                                    false,
		"ALTER TABLE a ADD COLUMN b integer;":                                                   false, // no version
		"ALTER TABLE a DROP COLUMN b; UPDATE dblock_schema SET version = 9, usable_from = 9;":   true,
		"ALTER TABLE a DROP COLUMN b; UPDATE dblock_schema SET version = 9, usable_from = 8;":   false,
		"ALTER TABLE a ADD COLUMN b int; UPDATE dblock_schema SET version = 9, usable_from = 4": false,
	} {
		if found := faults(9, text); fine != (len(found) == 0) {
			t.Errorf("%s: %v", text, found)
		}
	}
}

var (
	everything = regexp.MustCompile(`(?i)(\bSELECT|\bRETURNING|,|\w\.)\s*\*(\s|,|$)`)
	unnamed    = regexp.MustCompile(`(?i)\b(?:INSERT\s+(?:IGNORE\s+)?INTO|REPLACE\s+INTO)\s+\w+(\s+AS\s+\w+)?\s*(VALUES|SELECT|DEFAULT)`)
	natural    = regexp.MustCompile(`(?i)\bNATURAL\s+(LEFT\s+|INNER\s+)?JOIN\b`)
)

// A column that a later migration adds must mean nothing to the statements of this build. In
// queries/ a star may stand: sqlc writes the columns in its place. In gen/, which is what runs, and
// in views none may.
func TestStatementsNameTheirColumns(t *testing.T) {
	var texts []string
	for _, folder := range []string{"../gen", "."} {
		if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && (strings.HasSuffix(path, ".sql") || strings.HasSuffix(path, ".sql.go")) {
				texts = append(texts, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(texts) < 40 {
		t.Fatalf("only %d files", len(texts))
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if part := namesNothing(string(text)); part != "" {
			t.Errorf("%s: %q does not name its columns", path, part)
		}
	}
	for text, fine := range map[string]bool{
		"SELECT count(*) FROM a":              true,
		"SELECT 2 * b FROM a":                 true,
		"INSERT INTO a (b) SELECT c FROM d":   true,
		"SELECT a.* FROM a":                   false,
		"select\n* FROM a":                    false,
		"SELECT b, * FROM a":                  false,
		"UPDATE a SET b = 1 RETURNING *":      false,
		"INSERT INTO a\nVALUES (1)":           false,
		"INSERT IGNORE INTO a SELECT 1":       false,
		"SELECT a.b FROM a NATURAL JOIN c":    false,
		"-- SELECT * is bad\nSELECT b FROM a": true,
	} {
		if part := namesNothing(text); fine != (part == "") {
			t.Errorf("%s: %q", text, part)
		}
	}
}

func namesNothing(text string) string {
	text = comment.ReplaceAllString(text, "")
	for _, bad := range []*regexp.Regexp{everything, unnamed, natural} {
		if part := bad.FindString(text); part != "" {
			return part
		}
	}
	return ""
}
