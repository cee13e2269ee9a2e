// Package dblock is distributed locks in the database that an application already has: PostgreSQL, MySQL, MariaDB, or
// SQLite for one machine. No new server: the lock is a row, its queue is a table, and what a holder does under it can
// commit together with it.
package dblock
