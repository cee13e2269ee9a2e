// Package drivers is a module of its own. Its tests run the behaviour suite with drivers that the
// library's own module does not have. Each driver is a package, since two of them have the same
// name for database/sql.
package drivers
