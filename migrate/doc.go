// Package migrate creates dblock's tables in a database, and removes them.
//
// There are three ways to run the same SQL files. Up runs them with a history of their own, the
// table dblock_migrations. Copy writes them behind the migrations of an application that runs
// goose, where they become part of its history. migrations.FS returns them for other runners of
// goose. Use one way per database. An application's own goose history may exist beside dblock's:
// nothing is shared, not even goose's registry of Go migrations.
//
// # Sets
//
// The tables come in sets: Locks, for a client, Fences, for fence.Check, and Versions, for package
// optimistic. Each has a history and a version table of its own, so that a database gets only the
// tables that are used in it: fences are of use in databases without the locks. Up, Down, Status
// and Copy take any number of sets. Default: Locks.
//
//	err := migrate.Up(ctx, db, migrate.Postgres, migrate.Locks, migrate.Versions)
//
// Locks.In puts the tables of the locks into a schema of PostgreSQL or a database of MySQL or
// MariaDB, as postgres.Schema and mysql.Database find them:
//
//	err := migrate.Up(ctx, db, migrate.Postgres, migrate.Locks.In("app"))
//
// # Many at once
//
// Every process may call Up when it starts. Each version is one run of goose's Provider on one
// connection, which takes the lock, writes the tables, records the version and releases the lock.
// The run uses no other connection, so a pool of one is enough. A process that finds the lock taken
// returns the connection to the pool and retries until its context ends. When nothing is left to
// do, Up makes two or three reads and takes no lock; only a user of MySQL or MariaDB who has no
// right to the history takes the lock, to find that out.
//
//   - PostgreSQL: one transaction, and the lock is pg_advisory_xact_lock in it. Goose's own locker
//     takes a session lock instead, which stays behind on a server connection when a pooler lends
//     connections by the transaction. It also retries every 5 seconds only.
//   - SQLite: one transaction that begins as the writer (BEGIN IMMEDIATE). With any busy_timeout,
//     Up retries after SQLITE_BUSY.
//   - MySQL, MariaDB: GET_LOCK, by the database's name. DDL commits as it goes, so an interrupted
//     run may leave a part behind. Every statement of these files may therefore run twice, and the
//     version is recorded last. In a Galera cluster GET_LOCK is local to a node: let the clients of
//     one node call Up.
//
// # Versions
//
// Tables that a newer build has migrated stay unchanged. The tables themselves say which builds can
// use them, so that a rolled-back release works where it can: see docs/upgrading.md. Down and
// DownTo need a build that knows all versions of the tables.
package migrate
