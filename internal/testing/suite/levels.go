package suite

import (
	"database/sql"
	"testing"
)

// levels are the isolation levels that the engine has.
func (e *env) levels() []sql.IsolationLevel {
	switch e.wiring.Kind {
	case SQLite:
		return []sql.IsolationLevel{sql.LevelDefault}
	case Postgres:
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	}
	if e.wiring.Kind == TiDB {
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
	}
	return []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable}
}

// atEachLevel runs a test once for each isolation level.
func (e *env) atEachLevel(t *testing.T, test func(t *testing.T, name string, level sql.IsolationLevel)) {
	e.exec(t, "CREATE TABLE app (n integer)")
	for _, level := range e.levels() {
		t.Run(level.String(), func(t *testing.T) {
			if e.wiring.Kind == MariaDB && level == sql.LevelSerializable && e.snapshots(t, level) {
				t.Skip("innodb_snapshot_isolation: each read at this level refuses what is newer than its snapshot, " +
					"with error 1020")
			}
			test(t, "n/"+level.String(), level)
		})
	}
}

// snapshots reports whether transactions at a level are refused what is newer than their snapshot:
// ErrRetry. On TiDB the engine does that. On MariaDB that is innodb_snapshot_isolation, which is on
// by default from 11.8.
func (e *env) snapshots(t testing.TB, level sql.IsolationLevel) bool {
	t.Helper()
	switch e.wiring.Kind {
	case Postgres, TiDB:
		return level > sql.LevelReadCommitted
	case MariaDB:
		return level > sql.LevelReadCommitted &&
			e.number(t, "SELECT COUNT(*) FROM information_schema.session_variables WHERE variable_name = "+
				"'innodb_snapshot_isolation' AND variable_value = 'ON'") == 1
	}
	return false
}

// readCommitted is the level at which every statement sees the latest commits. SQLite has no
// levels, and its drivers refuse some.
func (e *env) readCommitted() sql.IsolationLevel {
	if e.wiring.Kind == SQLite {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}
