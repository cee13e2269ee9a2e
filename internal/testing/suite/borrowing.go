package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

var borrowing = inPlaces(own{
	{"a step leaves its connection as it was, at whichever statement the transaction's context ends",
		nothingIsBorrowed},
})

// sessionOf are queries whose answers together are what an application could have set in a session,
// and what a session can keep after a transaction.
var sessionOf = map[string][]string{
	Postgres: {
		"SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' ORDER BY name",
		"SELECT coalesce(current_setting('dblock.patience', true), '')",
		// those of a SERIALIZABLE transaction stay after its commit, until all beside it have ended
		"SELECT locktype || ' ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND " +
			"mode <> 'SIReadLock' AND (relation IS NULL OR relation >= 16384)",
		"SELECT pg_listening_channels()",
		"SELECT name FROM pg_prepared_statements WHERE name NOT LIKE 'stmtcache_%'", // which the driver keeps
		"SELECT count(*)::text FROM pg_cursors WHERE name <> ''",
		"SELECT (pg_current_xact_id_if_assigned() IS NULL)::text", // not in a transaction
	},
	MySQL: {"SHOW SESSION VARIABLES", "SELECT RELEASE_ALL_LOCKS()",
		"SELECT COUNT(*) FROM performance_schema.user_variables_by_thread WHERE thread_id = PS_CURRENT_THREAD_ID()"},
	MariaDB: {"SHOW SESSION VARIABLES", "SELECT RELEASE_ALL_LOCKS()"},
	TiDB:    {"SHOW SESSION VARIABLES", "SELECT RELEASE_ALL_LOCKS()"},
	Vitess:  {"SHOW SESSION VARIABLES"},
	SQLite: {
		"PRAGMA busy_timeout", "PRAGMA synchronous", "PRAGMA journal_mode", "PRAGMA locking_mode",
		"PRAGMA foreign_keys", "PRAGMA query_only",
		"PRAGMA read_uncommitted", "PRAGMA cache_size", "PRAGMA temp_store", "PRAGMA wal_autocheckpoint",
		"PRAGMA database_list",
	},
}

// varying are variables of MySQL and MariaDB that change by themselves, or with each INSERT.
var varying = []string{"timestamp", "rand_seed1", "rand_seed2", "last_insert_id", "identity", "insert_id",
	"pseudo_thread_id",
	"error_count", "warning_count", "last_gtid", "statement_id", "gtid_executed", "hostname",
	"last_sql_use_alloc", "tidb_last_query_info", "tidb_last_txn_info", "tidb_last_ddl_info", "tidb_current_ts",
	"last_plan_from_cache", "last_plan_from_binding", "tidb_enable_check_constraint"}

// sessionState is what a session has.
func (e *env) sessionState(query query) (string, error) {
	var b strings.Builder
	for _, text := range sessionOf[e.wiring.Kind] {
		fmt.Fprintln(&b, text)
		err := query(text, func(values []string) {
			for _, name := range varying {
				if values[0] == name {
					return
				}
			}
			fmt.Fprintln(&b, " ", strings.Join(values, " "))
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
	}
	return b.String(), nil
}

// step is one in a transaction of the application's.
type step struct {
	name string
	// block has another transaction in the way of the step; nil: none is.
	block func(tx Tx) error
	run   func(ctx context.Context, tx Tx) error
}

// nothingIsBorrowed ends the context of a transaction within each statement of each step, and then
// compares every connection of the pool with a new one. Broken by whatever a step has to restore.
func nothingIsBorrowed(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		e.set(t, Params("a short busy timeout", "_pragma", "busy_timeout(100)"))
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	require.NoError(t, migrate.Up(t.Context(), e.look, e.db.Engine, migrate.Fences, migrate.Versions))
	a := e.wiring.Open(t, e.db, 8)
	if a.spied == nil {
		t.Fatal("the pool cannot be spied on")
	}
	a = a.spied(t)
	c, other := e.clientOf(t, a), e.app(t, 6)
	blocker := e.clientOf(t, other)
	held := lock(t, c, "held")
	row := "UPDATE dblock_locks SET token = token WHERE name = 'held'"
	inTx := func(do func(ctx context.Context, tx any) error) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error { return do(ctx, raw(tx)) }
	}
	blocks := func(do func(ctx context.Context, tx Tx) error) func(tx Tx) error {
		return func(tx Tx) error { return do(brief(t), tx) }
	}
	lockTx := func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, "a", "b") }
	unlockTx := func(ctx context.Context, tx Tx) error { return c.UnlockTx(ctx, tx, held) }
	tryLockTx := func(ctx context.Context, tx Tx) error { return c.TryLockTx(ctx, tx, "a", "b") }
	check := inTx(func(ctx context.Context, tx any) error { return fence.Check(ctx, tx, "r", 7) })
	bump := inTx(func(ctx context.Context, tx any) error { return optimistic.Bump(ctx, tx, "n", 0) })
	lockA := blocks(func(ctx context.Context, tx Tx) error { return blocker.LockTx(ctx, tx, "a") })
	for _, s := range []step{
		{"LockTx", nil, lockTx},
		{"TryLockTx", nil, tryLockTx},
		{"Guard", nil, func(ctx context.Context, tx Tx) error { return c.Guard(ctx, tx, held) }},
		{"UnlockTx", nil, unlockTx},
		{"fence.Check", nil, check},
		{"optimistic.Bump", nil, bump},
		{"LockTx that waits", lockA, lockTx},
		{"TryLockTx that is refused", lockA, tryLockTx},
		{"UnlockTx that waits", blocks(func(ctx context.Context, tx Tx) error { return tx.exec(ctx, row) }), unlockTx},
		{"fence.Check that waits", blocks(check), check},
		{"optimistic.Bump that waits", blocks(bump), bump},
	} {
		for _, same := range []bool{true, false} {
			if same && s.block != nil && !unabridged() {
				continue // a wait ends with either in the same way
			}
			t.Run(fmt.Sprintf("%s, same context %v", s.name, same), func(t *testing.T) {
				e.endEachStatement(t, a, other, s, same)
			})
		}
	}
	unlock(t, held)
}

// before is how many statements of a step that waits are tried: it repeats itself, and waits in
// some of them for a turn.
var before = map[string]int{"pgx": 5, "database/sql": 8, "MySQL": 5, "MariaDB": 4, "SQLite": 7, "TiDB": 4,
	"Vitess": 5}

func (e *env) endEachStatement(t *testing.T, a, other App, s step, same bool) {
	for nth := 1; nth <= before[e.wiring.Name] || s.block == nil; nth++ {
		if !e.endStatement(t, a, other, s, same, nth) {
			return // it has no more
		}
	}
}

// endStatement ends the transaction's context within the nth statement of a step. It reports false
// if the step ends before.
func (e *env) endStatement(t *testing.T, a, other App, s step, same bool, nth int) (reached bool) {
	var holder Tx
	if s.block != nil {
		holder = beginTx(t, other, sql.LevelDefault)
		defer func() { _ = holder.rollback() }()
		require.NoError(t, s.block(holder))
	}
	ended := make(chan struct{})
	var tx Tx
	w := &spy{}
	begun, cancel := context.WithCancel(w.under(context.Background()))
	defer cancel()
	w.at = func(n int) {
		if n == nth {
			cancel()
			awaitEnd(tx)
			close(ended)
		}
	}
	ctx := w.under(brief(t))
	if same {
		ctx = begun
	}
	tx, err := a.begin(begun, sql.LevelDefault)
	require.NoError(t, err)
	if x, ok := tx.(pgxTx); ok {
		w.tx.Store(x.tx.Conn())
	}
	done := async(func() error { return s.run(ctx, tx) })
	select {
	case <-ended:
		reached = true
		if holder != nil {
			_ = holder.rollback() // the statement itself waits no longer
		}
		err = within(t, patience, "the step returns", done)
		if _, lasts := tx.(pgxTx); err != nil && !same && !lasts && !errors.Is(err, dblock.ErrTxDone) &&
			!errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("statement %d: %v, want that the transaction has ended", nth, err)
		}
	case <-done:
		select {
		case <-ended:
			reached = true
		default:
		}
	}
	_ = tx.rollback()
	a.idle(t, w, func(conn string, query query) {
		got, err := e.sessionState(query)
		require.NoError(t, err, "after statement", nth)
		want := e.newSession(t)
		if got != want {
			t.Errorf("after statement %d %s is not as a new one:\n%s", nth, conn, difference(got, want))
		}
	})
	return reached
}

// newSession is the state of a new connection.
func (e *env) newSession(t *testing.T) string {
	t.Helper()
	pool := e.db.SQL(t)
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	state, err := e.sessionState(queryOn(t.Context(), conn))
	require.NoError(t, err)
	return state
}

func queryOn(ctx context.Context, conn *sql.Conn) query {
	return func(text string, row func(values []string)) error {
		rows, err := conn.QueryContext(ctx, text)
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			texts := make([]string, len(values))
			for i, v := range values {
				texts[i] = v.String
			}
			row(texts)
		}
		return rows.Err()
	}
}

func difference(got, want string) string {
	var b strings.Builder
	lines := map[string]int{}
	for line := range strings.Lines(got) {
		lines[line]++
	}
	for line := range strings.Lines(want) {
		lines[line]--
	}
	for line, n := range lines {
		if n != 0 {
			fmt.Fprintf(&b, "%+d %s", n, line)
		}
	}
	return b.String()
}

// awaitEnd returns when database/sql knows that the transaction's context has ended: no further
// statement of it is sent. Commit looks at that before anything else.
func awaitEnd(tx Tx) {
	if x, ok := tx.(sqlTx); ok {
		for !errors.Is(x.tx.Commit(), sql.ErrTxDone) {
			runtime.Gosched()
		}
	}
}

// raw is the transaction as its driver has it.
func raw(tx Tx) any {
	if x, ok := tx.(pgxTx); ok {
		return x.tx
	}
	return tx.(sqlTx).tx
}

func idleOf(t testing.TB, pool *sql.DB, w *spy, look func(string, query)) {
	t.Helper()
	var conns []*sql.Conn
	giveBack := func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		conns = nil
	}
	defer func() { giveBack() }()
	eventually(t, patience, "the transaction's connection is back in the pool, or closed", func() bool {
		giveBack()
		back := w.conn.closed.Load() || w.conn.lent.Load() // to the client, which may keep it
		for range pool.Stats().Idle {
			conn, err := pool.Conn(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
			_ = conn.Raw(func(raw any) error { back = back || raw == w.conn; return nil })
		}
		return back
	})
	for i, conn := range conns {
		look(fmt.Sprintf("connection %d", i), queryOn(t.Context(), conn))
	}
}
