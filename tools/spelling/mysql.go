package spelling

import (
	"fmt"
	"go/format"
	"regexp"
	"slices"
	"strings"
)

// words are parts of statements, each with what a server has in its place.
type words []string

// dialect has the words of servers. Those by view are for a test, which moves the view of the
// clock.
type dialect struct {
	name, doc string
	clock     words // where statements read the view of the time
	words     words // of all statements, after clock
}

const (
	utcNow  = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
	tiDBNow = "CAST((NULLIF(@@tidb_current_ts, 0) >> 18) * 1000 AS SIGNED)"
)

// read has the time where a statement reads the view. The servers make a temporary table wherever a
// statement names the view, and sqlc does not know UTC_TIMESTAMP(6).
func read(now string) words { return words{"(SELECT c.now_us FROM dblock_clock c)", now} }

// joined is read for statements that join the view, too.
func joined(now, from string) words {
	return append(read(now), "dblock_clock c", "(SELECT "+now+" AS now_us"+from+") c")
}

// inTiDB are the words of TiDB, which has no SKIP LOCKED and no share locks, and every node of
// which has the same tables.
var inTiDB = words{
	"FOR UPDATE SKIP LOCKED", "FOR UPDATE NOWAIT",
	"LOCK IN SHARE MODE", "FOR UPDATE",
	// PD moves the clock every 50 ms: it may be late in one statement and not in the next
	"GREATEST(expires_at, ", "GREATEST(expires_at, 50000 + ",
	"SELECT ?, c.now_us + ", "SELECT ?, c.now_us + 50000 + ",
	// no share lock: another guarded transaction may have the row for long
	"SELECT takeovers, ", "SELECT /*+ MAX_EXECUTION_TIME(500) */ takeovers, ",
	"MAX_EXECUTION_TIME(1000)", "MAX_EXECUTION_TIME(100)",
	// of a constant, the statement returns it even if it finds no row
	"dead = LAST_INSERT_ID(", "dead = LAST_INSERT_ID(0 * pid + ",
	"next_ticket = LAST_INSERT_ID(", "next_ticket = LAST_INSERT_ID(0 * token + ",
	"began_at = LAST_INSERT_ID(", "began_at = LAST_INSERT_ID(0 * slot + ",
	"ended_at = LAST_INSERT_ID(", "ended_at = LAST_INSERT_ID(0 * slot + ",
	"since = LAST_INSERT_ID(", "since = LAST_INSERT_ID(0 * one + ",
	// with the text in place of the column, the lengths are always equal
	"s.host = ? AND CHAR", "CONCAT(s.host, '.') = CONCAT(?, '.') AND CHAR",
	"s.app = ? AND CHAR", "CONCAT(s.app, '.') = CONCAT(?, '.') AND CHAR",
	"l.host = ? AND CHAR", "CONCAT(l.host, '.') = CONCAT(?, '.') AND CHAR",
	"h.host = ? AND CHAR", "CONCAT(h.host, '.') = CONCAT(?, '.') AND CHAR",
	"CAST(CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS CHAR)",
	"(SELECT i.database_id FROM dblock_schema i)",
}

var dialects = []dialect{
	{name: "MySQL", doc: "MySQL and MariaDB", clock: read(utcNow)},
	{name: "TiDB", doc: "TiDB", clock: joined(tiDBNow, ""), words: inTiDB},
	{name: "TiDBByView", doc: "TiDB, with the view of the clock", words: inTiDB},
	// vtgate computes a time by its own clock if a statement names no table
	{name: "Vitess", doc: "Vitess", clock: joined(utcNow, " FROM dblock_schema")},
}

// mysql has sqlc's methods ask the connection for the text of a statement, and writes one file for
// each dialect.
func mysql(files Folder) (Folder, error) {
	spelled := Folder{"texts.go": textsFile}
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, ".sql.go"):
			text = asked.ReplaceAllString(text, "${1}q.db.Text(${2})${3}")
			spelled[name] = strings.ReplaceAll(text, "q.db.Text(query)", "query")
		case name == "db.go":
			spelled[name] = asking(text)
		}
	}
	queries := spelled.queries()
	for _, d := range dialects {
		text, err := d.file(queries)
		if err != nil {
			return nil, err
		}
		spelled["dialect_"+strings.ToLower(d.name)+".go"] = text
	}
	return spelled, nil
}

// missing returns an error if a dialect has words for a part that no statement has.
func missing(files Folder) error {
	var all strings.Builder
	for _, q := range files.queries() {
		all.WriteString(q.text)
	}
	for _, d := range dialects {
		for pair := range slices.Chunk(slices.Concat(d.clock, d.words), 2) {
			if !strings.Contains(all.String(), pair[0]) {
				return fmt.Errorf("%s: no statement has %q", d.name, pair[0])
			}
		}
	}
	return nil
}

// asked matches the constant in a call of sqlc's code, or in the statement that expands its lists.
// The variable query has the text of such a statement.
var asked = regexp.MustCompile(`(Context\(ctx, |query := )(\w+)([,)\n])`)

// asking adds Text to the methods of a connection. A transaction of database/sql has no such
// method.
func asking(text string) string {
	if strings.Contains(text, "Text(") {
		return text
	}
	const open = "type DBTX interface {\n"
	text = text[:strings.Index(text, "func (q *Queries) WithTx")]
	const method = "\tText(query string) string // in the words of the server\n"
	return strings.TrimSpace(strings.Replace(text, open, open+method, 1)) + "\n"
}

const textsFile = generated + `package mysqldb

// Texts are statements in the words of a server, by their texts in queries/mysql.
type Texts map[string]string

// Of returns a statement, which is the same on all servers unless it is in t.
func (t Texts) Of(query string) string {
	if text, other := t[query]; other {
		return text
	}
	return query
}
`

const generated = "// Code generated by tools/spell. DO NOT EDIT.\n\n"

// file returns the file with the statements that have other words in d.
func (d dialect) file(queries []query) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, generated+"package mysqldb\n\n// %s has statements in the words of %s.\nvar %[1]s = Texts{\n",
		d.name, d.doc)
	for _, q := range queries {
		text := strings.NewReplacer(d.clock...).Replace(q.text)
		if text = strings.NewReplacer(d.words...).Replace(text); text != q.text {
			fmt.Fprintf(&b, "\t%s: `%s`,\n", q.constant, text)
		}
	}
	b.WriteString("}\n")
	text, err := format.Source([]byte(b.String()))
	return string(text), err
}
