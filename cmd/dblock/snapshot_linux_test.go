package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// Each step adds an older snapshot, or one of another kind.
func TestDoctorNamesTheSnapshotsOfSlotsAndStandbysAndPreparedTransactions(t *testing.T) {
	t.Parallel()
	settings := []string{"max_connections=20", "max_prepared_transactions=2", "wal_level=logical"}
	p := newPrimary(t, settings...)
	db := p.pool(p.dsn(p.port))
	require.NoError(t, migrate.Up(t.Context(), db, migrate.Postgres))
	follower := p.pool(p.standby(append(settings, "wal_receiver_status_interval=1")...))
	w := &world{T: t, dsn: p.dsn(p.port)}
	names := func(parts ...string) {
		t.Helper()
		w.until(func() bool { // a standby reports once in a second
			text := w.doctor("--older", "1h").text("vacuum")
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return false
				}
			}
			return true
		})
	}

	p.exec(follower, "ALTER SYSTEM SET hot_standby_feedback = on", "SELECT pg_reload_conf()")
	tx, err := follower.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, require.ErrOf(tx.Exec("SELECT FROM dblock_locks")))
	names("ok: the oldest snapshot is that of the standby with hot_standby_feedback (pid ", "walreceiver",
		" transactions old. VACUUM keeps all newer row versions")

	p.exec(db, "SELECT pg_create_physical_replication_slot('follower')")
	p.exec(follower, "ALTER SYSTEM SET primary_slot_name = 'follower'", "SELECT pg_reload_conf()")
	names("ok: the oldest snapshot is that of the replication slot ('follower', physical, active)",
		"VACUUM keeps all newer row versions")
	p.exec(db, "INSERT INTO dblock_locks (name, token, acquired_at) VALUES ('n', 1, 1)", updates(manyVersions))
	names("note: the oldest snapshot is that of the replication slot ('follower', physical, active)",
		"pg_drop_replication_slot")
	require.NoError(t, tx.Rollback())
	p.exec(follower, "ALTER SYSTEM SET hot_standby_feedback = off", "SELECT pg_reload_conf()")
	names("ok: no other transaction, slot or standby has a snapshot")

	p.exec(db, "SELECT pg_create_logical_replication_slot('consumer', 'pgoutput')")
	names("ok: the oldest snapshot is that of the replication slot ('consumer', logical, inactive)",
		"VACUUM keeps the newer versions in the system catalogs")

	prepared, err := db.Begin()
	require.NoError(t, err)
	for _, s := range []string{"SELECT pg_current_xact_id()", "PREPARE TRANSACTION 'left behind'"} {
		require.NoError(t, require.ErrOf(prepared.Exec(s)))
	}
	_ = prepared.Rollback()
	w.doctor("--older", "1ms").has(isNote, "vacuum",
		"the oldest snapshot is that of the prepared transaction ('left behind', user postgres)", "open for ",
		"ROLLBACK PREPARED")
	p.exec(db, "ROLLBACK PREPARED 'left behind'", "SELECT pg_drop_replication_slot('consumer')")
	names("ok: no other transaction, slot or standby has a snapshot")
}
