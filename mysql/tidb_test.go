package mysql_test

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// onTiDB is a test's database on TiDB.
func onTiDB(t *testing.T) server {
	db := dbtest.Migrated(t, dbtest.KindTiDB)
	return server{db, db.SQL(t)}
}

func (s server) quiet(t *testing.T) *dblock.Client[*sql.Tx] {
	t.Helper()
	c, err := dblock.New(mysql.New(s.pool), dblock.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestSettingsOfTiDBWithWhichLocksExcludeNothingAreRefused(t *testing.T) {
	s := onTiDB(t)
	for name, value := range map[string]string{
		"tidb_txn_mode": "'optimistic'", "tidb_enable_noop_functions": "'ON'", "tidb_read_staleness": "'-5'",
		"tidb_low_resolution_tso": "1",
	} {
		pool := s.open(t, variable(name, value))
		err := inside.Of(mysql.New(pool)).OpenSession(t.Context(), driver.Session{ID: id(), TTL: ttl})
		require.ErrorIs(t, err, driver.ErrConfig, name)
	}
	_, err := mysql.Named(s.pool)
	require.NoError(t, err)
}

// A prepared statement that asks TiDB's function for the time gets that of its first run.
func TestTheClockOfTiDBGoesOn(t *testing.T) {
	s := onTiDB(t)
	e := inside.Of(mysql.New(s.pool)).Backend
	t.Cleanup(e.Attend("", ttl))
	session := id()
	require.NoError(t, e.OpenSession(t.Context(), driver.Session{ID: session, TTL: ttl}))
	for range 3 { // by the third time, a plan would be kept
		before := s.number(t, "SELECT expires_at FROM dblock_heartbeats")
		dbtest.Eventually(t, "the end of the lease to move", func() bool {
			alive, err := e.Beat(t.Context(), session, ttl)
			require.NoError(t, err)
			return alive && s.number(t, "SELECT expires_at FROM dblock_heartbeats") > before
		})
	}
	late := s.number(t, "SELECT CAST(expires_at - ? - (SELECT now_us FROM dblock_clock) AS SIGNED) "+
		"FROM dblock_heartbeats", ttl.Microseconds())
	if ahead := time.Duration(late) * time.Microsecond; ahead.Abs() > time.Minute {
		t.Errorf("the lease ends %v from when it should", ahead)
	}
}

// An optimistic transaction locks nothing before it commits, as a pessimistic one whose locks were
// lost with the node that had them in memory.
func TestATransactionWhoseLocksWereLostCannotCommitOnTiDB(t *testing.T) {
	for what, lock := range map[string]func(c *dblock.Client[*sql.Tx], tx *sql.Tx, l *dblock.Lock) error{
		"Guard": func(c *dblock.Client[*sql.Tx], tx *sql.Tx, l *dblock.Lock) error {
			return c.Guard(t.Context(), tx, l)
		},
		"LockTx": func(c *dblock.Client[*sql.Tx], tx *sql.Tx, _ *dblock.Lock) error {
			return c.LockTx(t.Context(), tx, "free")
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := onTiDB(t)
			c, other := s.quiet(t), s.quiet(t)
			s.exec(t, "CREATE TABLE app (n INT)")
			held, err := c.Lock(t.Context(), "held")
			require.NoError(t, err)
			free, err := c.Lock(t.Context(), "free") // the name has a row
			require.NoError(t, err)
			require.NoError(t, free.Unlock(t.Context()))

			first, err := s.pool.BeginTx(t.Context(), nil) // after it the hold has the row of its guard
			require.NoError(t, err)
			require.NoError(t, c.Guard(t.Context(), first, held))
			require.NoError(t, first.Commit())

			conn, err := s.pool.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, require.ErrOf(conn.ExecContext(t.Context(), "SET SESSION tidb_txn_mode = 'optimistic'")))
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			require.NoError(t, lock(c, tx, held))
			require.NoError(t, require.ErrOf(tx.Exec("INSERT INTO app VALUES (1)")))

			require.NoError(t, require.ErrOf(other.Break(t.Context(), "held", "taken over", held.Token())))
			l, err := other.Lock(t.Context(), "free")
			require.NoError(t, err)
			defer l.Unlock(context.Background())
			require.Error(t, tx.Commit(), "a commit without its locks")
			require.Equal(t, s.number(t, "SELECT COUNT(*) FROM app"), 0, "rows written without a lock")
		})
	}
}

// TiDB computes a LAST_INSERT_ID of a constant before it looks for the row.
func TestAnUpdateOnTiDBThatFindsNoRowSaysSo(t *testing.T) {
	s := onTiDB(t)
	e := inside.Of(mysql.New(s.pool)).Backend
	require.NoError(t, e.OpenSession(t.Context(), driver.Session{ID: id(), TTL: ttl}))
	require.ErrorIs(t, e.EndRun(t.Context(), driver.Run{Name: "job", Slot: 1, Token: 1}), driver.ErrNotHeld)
}
