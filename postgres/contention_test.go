package postgres

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Contention is no error: the server logs what it refuses a statement with, and operators look for
// a fault.

// refusals are the errors that the server has sent to connections, each of which it has logged.
type refusals struct {
	mu   sync.Mutex
	sent []*pgconn.PgError
}

func (r *refusals) OnPgError(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, err)
	return err.Severity != "FATAL"
}

func (r *refusals) none(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent) > 0 {
		t.Errorf("the server has logged %d errors, at first %v", len(r.sent), r.sent[0])
	}
	r.sent = nil
}

// application is a pool whose connections notice what the server refuses.
type application struct {
	engine  *engine
	begin   func() driver.Tx
	contend func() // many clients want one name for some seconds
	*refusals
}

func overPgx(t *testing.T, db dbtest.Database) application {
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	r := &refusals{}
	config.ConnConfig.OnPgError, config.MaxConns = r.OnPgError, 20
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	of := inside.Of(New(pool))
	begin := func() driver.Tx {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return of.In(tx)
	}
	contend := func() {
		contended(t, New(pool), func(f func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), pool, f) })
	}
	return application{of.Backend.(*engine), begin, contend, r}
}

func overSQL(t *testing.T, db dbtest.Database) application {
	config, r := configOf(t, db), &refusals{}
	config.OnPgError = r.OnPgError
	pool := limited(t, stdlib.OpenDB(config), 20)
	of := inside.Of(NewSQL(pool))
	begin := func() driver.Tx {
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return of.In(tx)
	}
	contend := func() {
		contended(t, NewSQL(pool), func(f func(tx *sql.Tx) error) error {
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			if err := f(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	}
	return application{of.Backend.(*engine), begin, contend, r}
}

var overDrivers = map[string]func(*testing.T, dbtest.Database) application{"pgx": overPgx, "sql": overSQL}

// Broken by a statement that waits for a row by itself, and by NOWAIT.
func TestARowThatOthersHaveLockedIsNoErrorOfTheServers(t *testing.T) {
	for name, over := range overDrivers {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Postgres(t)
			app := over(t, db)
			s := &script{T: t, engine: app.engine, pool: db.Pool(t)}
			s.session("a", time.Minute)
			s.session("b", time.Minute)
			of := func(name string, r protocol.Request) protocol.Request {
				r.Name = name
				return r
			}
			held, shared := s.have(of("held", request("a", "a1"))), s.have(of("shared", reader("a", "a2")))
			idle, guarded := s.have(of("idle", request("a", "a3"))), s.have(of("guarded", request("a", "a4")))
			s.enqueue(of("held", request("b", "b0")))
			s.makeGuard(guarded)
			s.release(s.have(of("free", request("a", "a5"))))
			s.begin()
			for _, sql := range []string{
				"SELECT FROM dblock_locks WHERE name <> 'guarded' FOR UPDATE", "SELECT dblock_make('new')",
				"SELECT FROM dblock_sessions WHERE id = 'a' FOR UPDATE", "SELECT FROM dblock_guards FOR SHARE",
			} {
				s.do(statement{sql: sql})
			}
			s.lockTimeout = briefly
			ctx := t.Context()
			busy := func(err error) bool { return errors.Is(err, driver.ErrBusy) || errors.Is(err, errOccupied) }
			inTx := func(do func(ctx context.Context, in driver.Tx) error) (err error) {
				try := func(limit time.Duration) error {
					within, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					return do(within, app.begin())
				}
				// The first try, and a turn. A busy machine may not have answered by then.
				if err = try(50 * time.Millisecond); errors.Is(err, context.DeadlineExceeded) && !busy(err) {
					err = try(5 * time.Second)
				}
				return err
			}
			lockTx := func(name string) func() error {
				return func() error {
					return inTx(func(ctx context.Context, in driver.Tx) error {
						may := func(string, int, any) bool { return false }
						_, _, err := in.Lock(ctx, name, may, true, nil)
						return err
					})
				}
			}
			take := func(name string, r protocol.Request) func() error {
				return func() error {
					_, _, err := drivertest.Take(ctx, s, of(name, r))
					return err
				}
			}
			for what, call := range map[string]func() error{
				"take":                         take("free", request("b", "b1")),
				"take a share":                 take("shared", reader("b", "b2")),
				"make the row of a name":       take("new", request("b", "b3")),
				"LockTx":                       lockTx("free"),
				"LockTx of a name without row": lockTx("new"),
				"UnlockTx": func() error {
					return inTx(func(ctx context.Context, in driver.Tx) error {
						return in.Release(ctx, held, protocol.Detachment{}, nil)
					})
				},
				"join": func() error {
					_, _, err := drivertest.Join(ctx, s, of("held", request("b", "b4")))
					return err
				},
				"release":         func() error { return assert.ErrOf(drivertest.Release(ctx, s, idle, false)) },
				"hand over":       func() error { return assert.ErrOf(drivertest.Release(ctx, s, held, true)) },
				"expire":          func() error { return assert.ErrOf(s.Expire(ctx, "a")) },
				"end the session": func() error { return s.EndSession(ctx, "a", false) },
				"guard":           func() error { return s.tryGuard(held) },
				"upgrade": func() error {
					_, _, err := s.upgrade(shared, "b5")
					return err
				},
				"take over what is guarded": func() error {
					_, _, err := drivertest.Break(ctx, s, "b", "guarded", protocol.Holder{Session: "a", Attempt: "a4",
						Grant: protocol.Grant{Token: guarded.Token}}, protocol.Event{})
					return err
				},
			} {
				t.Run(what, func(t *testing.T) {
					if err := call(); !busy(err) {
						t.Error(err)
					}
					app.none(t)
				})
			}
		})
	}
}

// Many clients that want one name leave no error, whatever they do with it. A transaction keeps it
// for longer than a statement waits for a row.
func TestSoakContentionIsNoErrorOfTheServers(t *testing.T) {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("it takes many seconds: DBLOCK_TEST_SOAK=1 runs it")
	}
	for name, over := range overDrivers {
		t.Run(name, func(t *testing.T) {
			app := over(t, dbtest.Postgres(t))
			app.contend()
			app.none(t)
		})
	}
}

func contended[TX any](t *testing.T, engine dblock.Engine[TX], within func(f func(tx TX) error) error) {
	const clients, lasting = 3, 10 * time.Second
	ctx, until := t.Context(), time.Now().Add(lasting)
	var work sync.WaitGroup
	for range clients {
		c := newClient(t, engine)
		locked := func(with func(l *dblock.Lock) error) func() error {
			return func() error {
				l, err := c.Lock(ctx, "n")
				if err != nil {
					return err
				}
				return errors.Join(with(l), l.Unlock(ctx))
			}
		}
		for _, f := range []func() error{
			locked(func(*dblock.Lock) error { return nil }),
			locked(func(l *dblock.Lock) error {
				return within(func(tx TX) error { return c.Guard(ctx, tx, l) })
			}),
			locked(func(l *dblock.Lock) error {
				return within(func(tx TX) error { return c.UnlockTx(ctx, tx, l) })
			}),
			func() error {
				l, err := c.TryLock(ctx, "n")
				if err != nil {
					return err
				}
				return l.Unlock(ctx)
			},
			func() error {
				time.Sleep(200 * time.Millisecond)
				return within(func(tx TX) error {
					err := c.LockTx(ctx, tx, "n")
					time.Sleep(120 * time.Millisecond)
					return err
				})
			},
		} {
			work.Go(func() {
				for time.Now().Before(until) {
					if err := f(); err != nil && !errors.Is(err, dblock.ErrNotAcquired) {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	work.Wait()
}
