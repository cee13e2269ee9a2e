package main

import (
	"database/sql"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// snapshot begins a transaction that keeps its first snapshot, and returns the server's id of the
// connection.
func (w *world) snapshot() (tx *sql.Tx, pid int) {
	w.Helper()
	tx, err := w.db.BeginTx(w.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	require.NoError(w, tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
	return tx, pid
}

// updates is a statement that updates all locks n times, each time in a transaction of its own.
func updates(n int) string {
	return fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE dblock_locks SET asked = asked; COMMIT; END LOOP; "+
		"END $$", n)
}

// oldest describes the oldest snapshot as a data source shows it; "": there is none.
func (w *world) oldest(dsn string) string {
	w.Helper()
	source, err := sourceOf(&options{}, environment("DBLOCK_DSN="+dsn))
	require.NoError(w, err)
	d, err := source.pool(false, io.Discard)
	require.NoError(w, err)
	defer d.Close()
	s, err := d.oldestSnapshot(w.Context())
	require.NoError(w, err)
	if s == nil {
		return ""
	}
	return s.String()
}

func TestTheOldestSnapshotIsNamed(t *testing.T) {
	onPostgres(t, func(w *world) {
		tx, pid := w.snapshot()
		w.exec("CREATE TABLE began ()") // of which the first snapshot knows nothing
		younger, _ := w.snapshot()
		is := fmt.Sprintf("the transaction (pid %d, user ", pid)
		contains(w, w.oldest(w.dsn), is, "idle in transaction", " transactions old, open for ")

		// A longer write in another database makes both equally old in transactions, and this user
		// does not see their times.
		require.NoError(w, younger.Rollback())
		user, dsn := w.as("app")
		contains(w, w.oldest(dsn), is, "open for a time that is hidden from this user", "pg_read_all_stats")
		w.exec("GRANT pg_read_all_stats TO " + user)
		contains(w, w.oldest(dsn), is, " transactions old, open for ")
		require.NoError(w, tx.Rollback())
		if strings.Contains(w.oldest(w.dsn), is) {
			w.Error("the transaction has ended")
		}
	})
}

// A transaction that has written holds the versions since its start, with a snapshot or without.
func TestAWriterHasASnapshotFromItsStart(t *testing.T) {
	onPostgres(t, func(w *world) {
		conn, err := w.db.Conn(w.Context())
		require.NoError(w, err)
		defer conn.Close()
		// the simple protocol leaves no portal, which would keep a snapshot
		var pid uint32
		require.NoError(w, conn.Raw(func(c any) error {
			raw := c.(*stdlib.Conn).Conn().PgConn()
			pid = raw.PID()
			_, err := raw.Exec(w.Context(), "BEGIN; SELECT pg_current_xact_id()").ReadAll()
			return err
		}))
		contains(w, w.oldest(w.dsn), fmt.Sprintf("pid %d, ", pid), "idle in transaction")
		require.NoError(w, require.ErrOf(conn.ExecContext(w.Context(), "ROLLBACK")))
	})
}

func TestWhyNamesAnOldSnapshot(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.lock("n")
		tx, pid := w.snapshot()
		if out := w.must("why", "n"); strings.Contains(out, "snapshot") {
			w.Error("the snapshot is young:\n", out)
		}
		w.exec(updates(manyVersions))
		says := fmt.Sprintf("The oldest snapshot is that of the transaction (pid %d, user ", pid)
		w.until(func() bool { return strings.Contains(w.must("why", "n"), says) }) // the server counts a moment later
		contains(w, w.must("why", "n", "--json"), `"snapshot":{"kind":"transaction"`)
		require.NoError(w, tx.Rollback())
		if out := w.must("why", "n"); strings.Contains(out, "snapshot") {
			w.Error("the transaction has ended:\n", out)
		}
	})
}

func TestAnOldSnapshotIsOneOfTimeOrTransactionsOrVersions(t *testing.T) {
	for _, c := range []struct {
		snapshot
		old bool
	}{
		{snapshot{Age: longOpen, Transactions: manyTransactions - 1, Versions: manyVersions - 1}, false},
		{snapshot{Age: longOpen + 1}, true},
		{snapshot{Transactions: manyTransactions}, true},
		{snapshot{Transactions: manyVersions, Versions: manyVersions}, true},
		{snapshot{Transactions: manyVersions - 1, Versions: manyVersions}, false}, // VACUUM has yet to come
	} {
		if c.snapshot.old() != c.old {
			t.Errorf("%+v: old is not %v", c.snapshot, c.old)
		}
	}
}

func TestASnapshotSaysWhatHoldsItAndSinceWhen(t *testing.T) {
	for want, s := range map[string]snapshot{
		"the transaction (pid 7), 5 transactions old, open for 2m": {Kind: ofTransaction, HeldBy: "pid 7",
			Age: 2 * time.Minute, Transactions: 5},
		"the transaction (pid 7), 5 transactions old, open for a time that is hidden from this user (GRANT " +
			"pg_read_all_stats TO it)": {Kind: ofTransaction, HeldBy: "pid 7", Transactions: 5},
		"the replication slot ('s', physical, inactive), 5 transactions old": {Kind: ofSlot,
			HeldBy: "'s', physical, inactive", Transactions: 5},
	} {
		if s.String() != want {
			t.Errorf("%v, want %s", s, want)
		}
	}
}
