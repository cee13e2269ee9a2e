package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// Each step adds an older snapshot, or one of another kind.
func TestTheOldestSnapshotMayBeThatOfASlotOrAStandbyOrAPreparedTransaction(t *testing.T) {
	t.Parallel()
	settings := []string{"max_connections=20", "max_prepared_transactions=2", "wal_level=logical"}
	p := newPrimary(t, settings...)
	db := p.pool(p.dsn)
	require.NoError(t, migrate.Up(t.Context(), db, migrate.Postgres))
	follower := p.pool(p.standby(append(settings, "wal_receiver_status_interval=1")...))
	w := &world{T: t, dsn: p.dsn}
	is := func(parts ...string) {
		t.Helper()
		w.until(func() bool { // a standby reports once in a second
			text := w.oldest(w.dsn)
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return false
				}
			}
			return true
		})
	}
	none := func() {
		t.Helper()
		w.until(func() bool { return w.oldest(w.dsn) == "" })
	}

	p.exec(follower, "ALTER SYSTEM SET hot_standby_feedback = on", "SELECT pg_reload_conf()")
	tx, err := follower.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, require.ErrOf(tx.Exec("SELECT FROM dblock_locks")))
	is("the standby with hot_standby_feedback (pid ", "walreceiver", " transactions old")

	p.exec(db, "SELECT pg_create_physical_replication_slot('follower')")
	p.exec(follower, "ALTER SYSTEM SET primary_slot_name = 'follower'", "SELECT pg_reload_conf()")
	is("the replication slot ('follower', physical, active)")
	require.NoError(t, tx.Rollback())
	p.exec(follower, "ALTER SYSTEM SET hot_standby_feedback = off", "SELECT pg_reload_conf()")
	none()

	// A logical slot keeps versions of the catalogs only.
	p.exec(db, "SELECT pg_create_logical_replication_slot('consumer', 'pgoutput')")
	none()

	prepared, err := db.Begin()
	require.NoError(t, err)
	for _, s := range []string{"SELECT pg_current_xact_id()", "PREPARE TRANSACTION 'left behind'"} {
		require.NoError(t, require.ErrOf(prepared.Exec(s)))
	}
	_ = prepared.Rollback()
	is("the prepared transaction ('left behind', user postgres)", "open for ")
	p.exec(db, "ROLLBACK PREPARED 'left behind'")
	none()
}
