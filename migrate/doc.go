// Package migrate brings dblock's tables into a database and takes them away again.
//
// There are three doors to the same SQL files. Up runs them here, in a history of their own, the
// table dblock_migrations. Copy writes them with timestamps into the migrations of an application
// that runs goose, to become part of its history. migrations.FS hands them to whatever else runs
// goose. Use one of them per database. An application's own goose history may stand beside ours:
// nothing is shared, not even goose's registry of Go migrations.
//
// # Sets
//
// The tables come in sets: Locks, for a client, Fences, for fence.Check, and Versions, for package
// optimistic. Each has a history and a version table of its own, so that a database gets what runs
// in it and nothing else: fences are of use where the locks are not. Up, Down, Status and Copy take
// any number of sets, and Locks where none is named.
//
//	err := migrate.Up(ctx, db, migrate.Postgres, migrate.Locks, migrate.Versions)
//
// # Many at once
//
// Every process may call Up when it starts. Each version is one run of goose's Provider on one
// connection, which takes the lock, writes the tables, records the version and lets the lock go;
// that connection is all it uses, so a pool of one is enough. Whoever finds the lock taken gives
// the connection back and asks again, until its context ends. Once nothing is left to do, Up is one
// or two reads and takes no lock.
//
//   - PostgreSQL: one transaction, and the lock is pg_advisory_xact_lock in it. Goose's own locker
//     takes a session lock instead, which a pooler that lends connections by the transaction
//     strands on a server connection; and it looks again every 5 seconds only.
//   - SQLite: one transaction that begins as the writer (BEGIN IMMEDIATE). Whatever the
//     busy_timeout, SQLITE_BUSY is waited out here.
//   - MySQL, MariaDB: GET_LOCK, by the database's name. DDL commits as it goes, so a run that was
//     cut may leave a part behind; every statement of our files may therefore run twice, and the
//     version is recorded last. In a Galera cluster GET_LOCK is local to a node: let one node's
//     clients call Up.
//
// # Versions
//
// A database that a newer build has migrated is left as it is. The tables themselves say from which
// build on they are usable, so that a rolled-back release works where it can: see
// docs/upgrading.md. Down and DownTo need the build that knows all versions of the tables.
package migrate
