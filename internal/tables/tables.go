// Package tables lets statements find dblock's tables wherever the connection looks for them: in a
// schema of PostgreSQL, a database of MySQL or MariaDB, or the main file of SQLite.
package tables

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// In is a schema or database. Nil, or one without a name, is the place where the connection looks
// by itself.
type In struct {
	name  string
	texts sync.Map // the statements with the place, by their texts without it
}

// fit matches the names that need no escape in any quotes.
var fit = regexp.MustCompile(`^[\pL_][\pL\d_$-]*$`)

// longest is the number of bytes of a name that PostgreSQL keeps.
const longest = 63

// New returns the schema or database of a name: letters, digits, "_", "$" and "-", up to 63 bytes.
func New(name string) (*In, error) {
	if !fit.MatchString(name) || len(name) > longest {
		return nil, fmt.Errorf("%q: want letters, digits, _, $ and -, at most 63 bytes, of which the first is a "+
			"letter or _", name)
	}
	return &In{name: name}, nil
}

// Objects lists the tables, views and functions of all sets.
var Objects = []string{
	"claims", "clock", "columns", "durable", "epoch", "events", "fences", "guard", "guards", "heartbeats",
	"holders", "incarnation", "insert", "living", "lock", "locks", "make", "migrations", "names", "now", "queue",
	"refuse", "runs", "schema", "sessions", "shares", "versions", "wait", "waiters", "wanted", "watchers", "who",
	"within",
}

// object matches one of them in a statement, with the character before it. In quotes it is a text.
var object = regexp.MustCompile(`(^|[^\w.'"@])(dblock_(?:` + strings.Join(Objects, "|") + `))\b`)

// Named reports whether a statement names an object.
func Named(text string) bool { return object.MatchString(text) }

// Postgres returns a statement in which every object has its schema.
func (i *In) Postgres(text string) string { return i.in(text, `"`) }

// SQLite returns a statement in which every object has its database.
func (i *In) SQLite(text string) string { return i.in(text, `"`) }

// MySQL returns a statement in which every object has its database.
func (i *In) MySQL(text string) string { return i.in(text, "`") }

// MySQLMigration returns a statement in which every object has its database, and which takes that
// database for the connection's own.
func (i *In) MySQLMigration(text string) string {
	if i == nil {
		return text
	}
	return strings.ReplaceAll(i.MySQL(text), "DATABASE()", "'"+i.name+"'")
}

func (i *In) in(text, quote string) string {
	if i == nil || i.name == "" {
		return text
	}
	if known, ok := i.texts.Load(text); ok {
		return known.(string)
	}
	placed := object.ReplaceAllString(text, "${1}"+strings.ReplaceAll(quote+i.name+quote, "$", "$$")+".${2}")
	// a LISTEN, which is not generated, has another text in each session
	if placed != text || strings.HasPrefix(text, "-- name: ") {
		i.texts.Store(text, placed)
	}
	return placed
}

// String returns the name, "" of nil.
func (i *In) String() string {
	if i == nil {
		return ""
	}
	return i.name
}
