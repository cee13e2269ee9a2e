// Package sqlitedrivers is a module of its own, whose tests run the behaviour suite of SQLite with drivers that the library's
// own module does not have. They are two packages, since both drivers call themselves sqlite3.
package sqlitedrivers
