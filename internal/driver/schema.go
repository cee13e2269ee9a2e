package driver

import "fmt"

// SchemaVersion is the version of dblock's tables that this build creates, and the lowest that it
// works with.
const SchemaVersion = 1

// unlessUnderWay is added for versions that tables may only pass through: during a migration or a
// drop, each version is committed by itself, and on MySQL and MariaDB each statement.
const unlessUnderWay = ", unless a migration is under way"

// Schema is the version of dblock's tables. A build is identified by its SchemaVersion. Version 0:
// there are no tables yet.
type Schema struct {
	Version    int
	UsableFrom int // the oldest build that can work with these tables
	// Emptied is set where the tables exist without the row that has their version: somebody has
	// deleted the rows of all tables.
	Emptied bool
	// Database identifies the database, which may have copies; "" where there are no tables.
	Database string
	// In is the schema or database of the tables; "": the one that connections use.
	In string
	// Place describes where the tables were looked for. It is read where this build cannot work
	// with them; "": it is not known.
	Place string
}

// Check returns nil where this build can work with the tables, and a *SchemaError otherwise.
func (s Schema) Check() error { return s.check(SchemaVersion) }

func (s Schema) check(build int) error {
	if s.Version < build || s.UsableFrom > build {
		return &SchemaError{s, build}
	}
	return nil
}

// SchemaError says why this build cannot work with the tables, and which command to run. It
// matches ErrSchema.
type SchemaError struct {
	Schema Schema
	build  int // its SchemaVersion
}

// Error names both versions and the command to run.
func (e *SchemaError) Error() string {
	return e.Text("migrate.Up" + e.Schema.where(" of migrate.Locks.In(%q)") + " with this build")
}

// Text is Error with the given command to make or update the tables.
func (e *SchemaError) Text(up string) string {
	switch s, in := e.Schema, e.Schema.in(); {
	case s.Emptied:
		return fmt.Sprintf("dblock's tables%s were emptied, and their version with them (dblock_schema has no row): "+
			"run %s, which writes it again%s", in, up, unlessUnderWay)
	case s.Version == 0:
		return fmt.Sprintf("dblock's tables are missing%s; this build needs version %d: run %s%s", in, e.build, up,
			unlessUnderWay)
	case s.Version < e.build:
		return fmt.Sprintf("dblock's tables%s are at version %d now, this build needs version %d: run %s%s", in,
			s.Version, e.build, up, unlessUnderWay)
	default:
		return fmt.Sprintf("dblock's tables%s are at version %d, which serves builds for version %d and later; this "+
			"build is for version %d: deploy one of those builds, or stop them and take the tables back with "+
			"migrate.DownTo(ctx, db, engine, %d) of such a build",
			in, s.Version, s.UsableFrom, e.build, e.build)
	}
}

// in names the place of the tables, with the word before it; "" where it is not known.
func (s Schema) in() string {
	if s.Place == "" {
		return s.where(" in %q")
	}
	return " in " + s.Place
}

// where formats a text with In; "" where In is not set.
func (s Schema) where(text string) string {
	if s.In == "" {
		return ""
	}
	return fmt.Sprintf(text, s.In)
}

// Unwrap returns ErrSchema.
func (e *SchemaError) Unwrap() error { return ErrSchema }
