package advisory

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/sessionlock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// stage is a database without dblock's tables, clients that keep advisory locks in it, and
// strangers: sessions that do not know of the clients.
type stage struct {
	*testing.T
	db      dbtest.Database
	outside *pgxpool.Pool
	seen    *pgx.Conn // looks at the server, and is not counted
}

// keeper has the locks of a client.
type keeper = *sessionlock.Keeper[keys]

// absence is how long waits survive without the server.
const absence = time.Minute

func newStage(t *testing.T) *stage { return stageOn(t, dbtest.Empty(t, dbtest.KindPostgres)) }

func stageOn(t *testing.T, db dbtest.Database) *stage {
	t.Helper()
	s := &stage{T: t, db: db, outside: db.Pool(t)}
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	s.seen = conn
	t.Cleanup(func() {
		dbtest.Eventually(s, "no advisory lock to be left", func() bool {
			return s.count("SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE locktype "+
				"= 'advisory' AND datname = current_database()") == 0
		})
		_ = s.seen.Close(context.Background())
	})
	return s
}

// client is a keeper on a pool of its own, whose application has its own settings.
func (s *stage) client(settings ...string) keeper {
	s.Helper()
	return s.open((s.pool(settings...)))
}

func (s *stage) pool(settings ...string) *pgxpool.Pool {
	s.Helper()
	config, err := pgxpool.ParseConfig(s.db.DSN)
	require.NoError(s, err)
	for i := 0; i < len(settings); i += 2 {
		config.ConnConfig.RuntimeParams[settings[i]] = settings[i+1]
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(s.Context()), config)
	require.NoError(s, err)
	s.Cleanup(pool.Close)
	return pool
}

func (s *stage) open(pool *pgxpool.Pool) keeper {
	s.Helper()
	k, err := open(pool, sessionlock.Config{TTL: absence, Log: slog.New(slog.DiscardHandler)})
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, k.Close(context.Background())) })
	return k
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.Helper()
	require.NoError(s, s.seen.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// waiting returns when n connections wait for an advisory lock.
func (s *stage) waiting(n int) {
	s.Helper()
	dbtest.Eventually(s, "as many to wait as should", func() bool { return s.waiters() == n })
}

func (s *stage) waiters() int {
	s.Helper()
	return s.count(
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'`)
}

func (s *stage) lock(k keeper, name string, shared bool) sessionlock.Possession {
	s.Helper()
	p, ok, err := k.Acquire(s.Context(), name, shared, true)
	if err != nil || !ok {
		s.Fatalf("lock: %v, %v", ok, err)
	}
	return p
}

// free reports whether TryLock gets a name, and gives it back.
func (s *stage) free(k keeper, name string, shared bool) bool {
	s.Helper()
	p, ok, err := k.Acquire(s.Context(), name, shared, false)
	require.NoError(s, err, "try")
	if ok {
		s.unlock(p)
	}
	return ok
}

func (s *stage) unlock(p sessionlock.Possession) {
	s.Helper()
	require.NoError(s, p.Release(context.Background()), "unlock")
}

// attempt is a call that waits.
type attempt struct {
	done   chan struct{}
	cancel context.CancelFunc
	p      sessionlock.Possession
	err    error
}

// begin calls Lock, and returns when that many connections wait in the server.
func (s *stage) begin(k keeper, name string, shared bool, waiting int) *attempt {
	s.Helper()
	return s.call(waiting, func(ctx context.Context) (sessionlock.Possession, error) {
		p, _, err := k.Acquire(ctx, name, shared, true)
		return p, err
	})
}

// beginTx is begin for LockTx.
func (s *stage) beginTx(tx pgx.Tx, name string, shared bool, waiting int) *attempt {
	s.Helper()
	return s.call(waiting, func(ctx context.Context) (sessionlock.Possession, error) {
		ok, err := lockTx(ctx, tx, name, shared, true)
		if err == nil && !ok {
			err = errors.New("not taken, and no error")
		}
		return nil, err
	})
}

func (s *stage) call(waiting int, f func(ctx context.Context) (sessionlock.Possession, error)) *attempt {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	a := &attempt{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(a.done)
		a.p, a.err = f(ctx)
	}()
	s.waiting(waiting)
	return a
}

// granted waits for a call to return with the lock.
func (s *stage) granted(a *attempt) sessionlock.Possession {
	s.Helper()
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
		s.Fatal("it was not granted")
	}
	require.NoError(s, a.err)
	return a.p
}

func (s *stage) still(attempts ...*attempt) {
	s.Helper()
	for _, a := range attempts {
		select {
		case <-a.done:
			s.Fatalf("it does not wait any more: %v", a.err)
		default:
		}
	}
}

// begun is a transaction of the application's, in which something has been done.
func (s *stage) begun(pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	s.Helper()
	tx, err := pool.BeginTx(s.Context(), options)
	require.NoError(s, err)
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(s, require.ErrOf(tx.Exec(s.Context(), "SELECT set_config('dblock.work', 'done', true)")))
	return tx
}

// usable fails unless a transaction is as it was and can go on.
func (s *stage) usable(tx pgx.Tx) {
	s.Helper()
	var work string
	if err := tx.QueryRow(s.Context(), "SELECT current_setting('dblock.work')").Scan(&work); err != nil ||
		work != "done" {
		s.Fatalf("the transaction is not usable: %q, %v", work, err)
	}
}

func (s *stage) exec(on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	s.Helper()
	require.NoError(s, require.ErrOf(on.Exec(s.Context(), sql, args...)), sql)
}

func (s *stage) commit(tx pgx.Tx) {
	s.Helper()
	require.NoError(s, tx.Commit(s.Context()))
}

// stranger is a session that knows nothing but keys.
func (s *stage) stranger() *pgx.Conn {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.db.DSN)
	require.NoError(s, err)
	s.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
