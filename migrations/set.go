package migrations

import "fmt"

// Set is a set of tables with a history of its own. No set needs another: a database in which only
// fence.Check runs has Fences and nothing else.
type Set struct{ name, schema string }

// The sets.
var (
	Locks    = Set{name: "locks"}    // dblock_locks and the other tables of a client
	Fences   = Set{name: "fences"}   // dblock_fences, of package fence
	Versions = Set{name: "versions"} // dblock_versions, of package optimistic
)

// Sets lists all sets.
var Sets = []Set{Locks, Fences, Versions}

// In returns the set in the place that postgres.Schema or mysql.Database finds: a schema of
// PostgreSQL, which migrate.Up makes where it is missing, or a database of MySQL or MariaDB, which
// must exist. The set's history is beside its tables. The set in the place where the connections
// look by themselves stays the same. Only Locks can have a place: fences and versions are found by
// the connection alone. SQLite has no places. Default: where the connection looks, as with "".
//
//	err := migrate.Up(ctx, db, migrate.Postgres, migrate.Locks.In("app"))
func (s Set) In(schema string) Set {
	s.schema = schema
	return s
}

// String returns the name of the set, in any place: "locks" for Locks.
func (s Set) String() string { return s.name }

// Table returns the name of the set's own goose version table, without the place of In.
func (s Set) Table() string {
	if s.name == Locks.name {
		return "dblock_migrations"
	}
	return "dblock_migrations_" + s.name
}

// folder returns the folder of the set's migrations for an engine, or an error if there is none.
func (s Set) folder(engine Engine) (string, error) {
	switch {
	case engine != Postgres && engine != MySQL && engine != SQLite:
		return "", fmt.Errorf("dblock: no migrations for engine %q: want %s, %s or %s", engine, Postgres, MySQL, SQLite)
	case s.schema != "" && engine == SQLite:
		return "", fmt.Errorf("dblock: %s in %q: SQLite has no schemas", s, s.schema)
	case s.name == Locks.name:
		return string(engine), nil
	case s.name != Fences.name && s.name != Versions.name:
		return "", fmt.Errorf("dblock: no migrations %q: want %s, %s or %s", s.name, Locks, Fences, Versions)
	case s.schema != "":
		return "", fmt.Errorf("dblock: %s in %q: only %s can have a place; %s are found by the connection", s, s.schema,
			Locks, s)
	}
	return s.name + "/" + string(engine), nil
}
