package driver

import "fmt"

// SchemaVersion is the version of dblock's tables that this build creates, and the lowest that it
// works with.
const SchemaVersion = 8

// firstSaid is the first version of the tables that tells which builds can use it.
const firstSaid = 3

// unlessUnderWay is said of a version that tables may only pass through: while they are migrated,
// or dropped, each version is committed by itself, and on MySQL and MariaDB each statement.
const unlessUnderWay = ", unless a migration is under way"

// Schema is the version of dblock's tables. A build is known by its SchemaVersion. The zero value:
// there are no tables, or tables older than version 3.
type Schema struct {
	Version    int
	UsableFrom int // the oldest build that can work with these tables
	// Database identifies the database, which may have copies; "" where no version has said so.
	Database string
}

// Check returns nil where this build can work with the tables, and a *SchemaError otherwise.
func (s Schema) Check() error {
	if s.Version < SchemaVersion || s.UsableFrom > SchemaVersion {
		return &SchemaError{s}
	}
	return nil
}

// SchemaError tells why this build cannot work with the tables, and what to do. It matches
// ErrSchema.
type SchemaError struct{ Schema Schema }

// Error names both versions and the remedy.
func (e *SchemaError) Error() string {
	switch s := e.Schema; {
	case s.Version == 0:
		return fmt.Sprintf("dblock's tables are missing, or older than version %d; this build needs version %d: run migrate.Up with this build%s",
			firstSaid, SchemaVersion, unlessUnderWay)
	case s.Version < SchemaVersion:
		return fmt.Sprintf("dblock's tables are at version %d now, this build needs version %d: run migrate.Up with this build%s",
			s.Version, SchemaVersion, unlessUnderWay)
	default:
		return fmt.Sprintf("dblock's tables are at version %d, which serves builds for version %d and later; this build is for version %d: "+
			"deploy one of those builds, or stop them and take the tables back with migrate.DownTo(ctx, db, engine, %d) of such a build",
			s.Version, s.UsableFrom, SchemaVersion, SchemaVersion)
	}
}

// Unwrap returns ErrSchema.
func (e *SchemaError) Unwrap() error { return ErrSchema }
