package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
)

var levels = []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead,
	sql.LevelSerializable}

// application is one whose transactions a test scripts.
type application struct {
	actor
	engine driver.Engine[*sql.Tx]
	beside driver.OnSideConn
}

func (s server) application(t *testing.T) application {
	t.Helper()
	return applicationOn(t, s.open(t, nil))
}

func applicationOn(t *testing.T, pool *sql.DB, options ...mysql.Option) application {
	t.Helper()
	e := inside.Of(mysql.New(pool, options...))
	a := application{actor{Backend: e.Backend, session: id(), pool: pool, locked: new(atomic.Bool)}, e,
		onSideConn(t, e.Backend)}
	require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", App: "test", TTL: ttl}))
	return a
}

// begin begins a transaction, and tells the connection that it is on.
func (a application) begin(t *testing.T, level sql.IsolationLevel) (*sql.Tx, actor) {
	t.Helper()
	tx, err := a.pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	on := actor{locked: new(atomic.Bool)}
	require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&on.conn))
	return tx, on
}

func (a application) lock(ctx context.Context, tx *sql.Tx, name string, wait bool) (bool, error) {
	_, locked, err := a.engine.In(tx).Lock(ctx, name, nobody, wait, a.beside)
	return locked, err
}

// locks has a transaction lock a name, or find that it cannot.
func (a application) locks(t *testing.T, tx *sql.Tx, name string, wait, want bool) {
	t.Helper()
	if locked, err := a.lock(t.Context(), tx, name, wait); err != nil || locked != want {
		t.Fatalf("%s is locked: %v, %v; want %v", name, locked, err, want)
	}
}

// then does something between a step's look on the side connection and its statements.
func (a application) then(do func()) driver.OnSideConn {
	return func(ctx context.Context, look func(context.Context, driver.Upkeep) error) error {
		err := a.beside(ctx, look)
		do()
		return err
	}
}

// nobody's lease may be passed.
func nobody(string, int, any) bool { return false }

// idle makes a name's row one that every purge takes.
func (s server) idle(t *testing.T, name string) {
	t.Helper()
	s.exec(t, idleRow, name)
}

const idleRow = `INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
	VALUES (?, '', '', 1, 1, '')`

// Whoever makes a row or a share beside a name must not wait for a transaction that has to do with
// the name.
func TestATransactionLocksNamesAndNoGaps(t *testing.T) {
	const name = "m"
	steps := map[string]func(t *testing.T, s server, a application, tx *sql.Tx){
		"LockTx of a new name": func(t *testing.T, _ server, a application, tx *sql.Tx) {
			a.locks(t, tx, name, true, true)
		},
		"LockTx of an idle name": func(t *testing.T, s server, a application, tx *sql.Tx) {
			s.idle(t, name)
			a.locks(t, tx, name, false, true)
		},
		"TryLockTx of a name that another has locked": func(t *testing.T, s server, a application, tx *sql.Tx) {
			other, _ := a.begin(t, sql.LevelReadCommitted)
			for _, tx := range []*sql.Tx{other, tx} {
				a.locks(t, tx, name, false, tx == other)
			}
		},
		"LockTx that waits, and gives up": func(t *testing.T, s server, a application, tx *sql.Tx) {
			other, _ := a.begin(t, sql.LevelReadCommitted)
			a.locks(t, other, name, true, true)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := a.lock(ctx, tx, name, true)
			is(t, err, context.DeadlineExceeded)
		},
		"LockTx of a name that is held": func(t *testing.T, s server, a application, tx *sql.Tx) {
			a.take(t, name)
			a.locks(t, tx, name, true, false)
		},
		"UnlockTx": func(t *testing.T, s server, a application, tx *sql.Tx) {
			require.NoError(t, a.engine.In(tx).Release(t.Context(), a.take(t, name), protocol.Detachment{},
				a.beside))
		},
		"UnlockTx of a share": func(t *testing.T, s server, a application, tx *sql.Tx) {
			held := a.share(t, a.reader(name))
			a.share(t, a.reader(name))
			gone := held
			gone.Token--
			is(t, a.engine.In(tx).Release(t.Context(), gone, protocol.Detachment{}, a.beside), driver.ErrNotHeld)
			require.NoError(t, a.engine.In(tx).Release(t.Context(), held, protocol.Detachment{}, a.beside))
		},
		"UnlockTx of a name without a row": func(t *testing.T, s server, a application, tx *sql.Tx) {
			for _, shared := range []bool{false, true} {
				gone := protocol.Held{Name: name, Session: a.session, Token: 1, Shared: shared}
				is(t, a.engine.In(tx).Release(t.Context(), gone, protocol.Detachment{}, a.beside),
					driver.ErrNotHeld)
			}
		},
	}
	each(t, func(t *testing.T, s server) {
		others, err := s.pool.Conn(t.Context())
		require.NoError(t, err)
		defer others.Close()
		_, err = others.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1")
		require.NoError(t, err)
		for what, step := range steps {
			for _, level := range levels {
				// without any, the gap would be the whole table
				for _, neighbours := range [][]string{nil, {"l", "n"}} {
					t.Run(fmt.Sprintf("%s at %v beside %d", what, level, len(neighbours)), func(t *testing.T) {
						s.exec(t, "DELETE FROM dblock_shares")
						s.exec(t, "DELETE FROM dblock_locks")
						for _, n := range neighbours {
							s.idle(t, n)
						}
						a := s.application(t)
						tx, _ := a.begin(t, level)
						step(t, s, a, tx)
						s.noGaps(t, others)
					})
				}
			}
		}
	})
}

// noGaps makes rows and shares around "m", on a connection that waits for a second at most.
func (s server) noGaps(t *testing.T, on *sql.Conn) {
	t.Helper()
	for _, near := range []string{"k", "l+", "m+", "n+"} {
		_, err := on.ExecContext(t.Context(), idleRow, near)
		assert.NoError(t, err, "the row of", near, "cannot be made")
		_, err = on.ExecContext(t.Context(),
			"INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, acquired_at, "+
				"metadata) VALUES (?, 1, '', '', '', ?, 1, 1, '')", near, id())
		assert.NoError(t, err, "a share of", near, "cannot be made")
	}
	if s.Kind == dbtest.KindMySQL { // where it can be seen
		if n := s.number(t, "SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema = DATABASE() "+
			"AND lock_type = 'RECORD' AND lock_mode NOT LIKE '%,REC_NOT_GAP%'"); n != 0 {
			t.Errorf("%d gaps are locked", n)
		}
	}
}

// Broken by a row that is made, or found, and that the purge may take before it is locked.
func TestAPurgeLeavesARowAloneThatLockTxIsAboutToLock(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, purger := s.application(t), s.engine(t)
		for what, prepare := range map[string]func(name string){
			"new":  func(string) {},
			"idle": func(name string) { s.idle(t, name) },
			"released": func(name string) {
				does(t, a.actor, protocol.Release(a.take(t, name), false, false))
			},
			"shared": func(name string) {
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.share(t, a.reader(name)), false)))
			},
		} {
			for _, level := range levels {
				name := id()
				prepare(name)
				tx, _ := a.begin(t, level)
				_, locked, err := a.engine.In(tx).Lock(t.Context(), name, nobody, true, a.then(func() {
					for _, idle := range []time.Duration{0, time.Microsecond} {
						require.NoError(t, third(purger.Purge(t.Context(), idle, "", 100)))
					}
				}))
				if err != nil || !locked {
					t.Errorf("a %s name at %v: %v %v", what, level, locked, err)
				}
				require.NoError(t, tx.Rollback())
			}
		}
	})
}

// Broken by going on to lock a row that a purge has locked.
func TestLockTxMakesARowAnewThatIsBeingPurged(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		mysql.Patient(a.Backend, func() { a.locked.Store(true) })
		s.idle(t, "n")
		purging, goOn := s.purging(t)
		tx, _ := a.begin(t, sql.LevelRepeatableRead)
		locking := start(t, func(ctx context.Context) (bool, error) { return a.lock(ctx, tx, "n", true) })
		s.blocked(t, a.actor)
		goOn()
		if got := <-purging; got.err != nil || got.value != 1 {
			t.Fatalf("%+v, want 1 deleted", got)
		}
		if got := <-locking; got.err != nil || !got.value {
			t.Fatalf("%+v, want locked", got)
		}
	})
}

// Broken by a statement that waits on the server for longer than anybody waits for its answer.
func TestNoStatementIsLeftThatWaitsToMakeARow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		a.beside = a.OnSideConn // whose connections wait for a row no longer than a second
		making := s.transaction(t, idleRow, "n")
		tx, _ := a.begin(t, sql.LevelRepeatableRead)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := a.lock(ctx, tx, "n", true)
		is(t, err, context.DeadlineExceeded)
		s.waiting(t, 0)
		require.NoError(t, making.Commit())
		a.locks(t, tx, "n", true, true)
	})
}

// Broken by an error where MariaDB refuses what a statement has not seen when it began.
func TestLockTxLocksARowThatAnotherMakesInTheSameMoment(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		a.beside = a.OnSideConn
		making := s.transaction(t, idleRow, "n")
		tx, _ := a.begin(t, sql.LevelReadCommitted)
		locking := start(t, func(ctx context.Context) (bool, error) { return a.lock(ctx, tx, "n", true) })
		s.waiting(t, 1)
		require.NoError(t, making.Commit())
		if got := <-locking; got.err != nil || !got.value {
			t.Fatalf("%+v, want locked", got)
		}
	})
}

// What the aside found to be the holder's is another's by the time that it is locked.
func TestUnlockTxReleasesWhatItWasToldAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		for _, contended := range []bool{false, true} {
			held := a.take(t, id())
			// so that it does not look again
			require.NoError(t, a.engine.In(nil).MakeGuard(t.Context(), held, a.beside))
			tx, _ := a.begin(t, sql.LevelRepeatableRead)
			meanwhile := sync.OnceFunc(func() {
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, held, contended)))
				a.take(t, held.Name) // the same session, with another token
			})
			err := a.engine.In(tx).Release(t.Context(), held, protocol.Detachment{}, a.then(meanwhile))
			is(t, err, driver.ErrNotHeld)
			require.NoError(t, tx.Commit())
			if h := a.look(t, held.Name).Holder; h.Session != a.session {
				t.Error("a later hold was released")
			}
		}
	})
}

// Broken by an UnlockTx that goes by what it has seen before the name's row was locked.
func TestUnlockTxSeesAGuardThatCameSinceItLooked(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		for _, shared := range []bool{false, true} {
			held := a.take(t, id())
			if shared {
				held = a.share(t, a.reader(id()))
			}
			other, _ := a.begin(t, sql.LevelRepeatableRead)
			tx, _ := a.begin(t, sql.LevelRepeatableRead)
			meanwhile := sync.OnceFunc(func() { a.guard(t, other, held) })
			err := a.engine.In(tx).Release(t.Context(), held, protocol.Detachment{}, a.then(meanwhile))
			is(t, err, driver.ErrGuarded)
			require.NoError(t, tx.Rollback())
			require.NoError(t, other.Commit())
		}
	})
}

// guard has a transaction guard a hold.
func (a application) guard(t *testing.T, tx *sql.Tx, held protocol.Held) {
	t.Helper()
	require.NoError(t, a.engine.In(nil).MakeGuard(t.Context(), held, a.beside))
	require.NoError(t, a.engine.In(tx).Guard(t.Context(), held, a.beside))
}

// Servers that take the whole transaction back for a lock wait that times out, and MariaDB for
// NOWAIT too.
func TestNoTransactionIsUndoneUnseen(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			own := dbtest.Own(t, kind, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1")
			db := own.Empty(t)
			s := server{db, db.SQL(t)}
			s.migrate(t)
			require.NoError(t, migrate.Up(t.Context(), s.pool, migrate.MySQL, migrate.Fences))
			s.exec(t, "CREATE TABLE work (n INT PRIMARY KEY)")
			a := s.application(t)
			holder, _ := a.begin(t, sql.LevelRepeatableRead)
			a.locks(t, holder, "n", true, true)
			tx, _ := a.begin(t, sql.LevelRepeatableRead)
			_, err := tx.Exec("INSERT INTO work VALUES (1)")
			require.NoError(t, err)
			a.locks(t, tx, "n", false, false)
			_, err = tx.Exec("INSERT INTO work VALUES (2)")
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			if n := s.number(t, "SELECT SUM(n) FROM work"); n != 3 {
				t.Fatalf("rows whose sum is %d, want 3: refused, TryLockTx has undone the transaction", n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			tx, _ = a.begin(t, sql.LevelRepeatableRead)
			_, err = tx.Exec("INSERT INTO work VALUES (4)")
			require.NoError(t, err)
			_, err = a.lock(ctx, tx, "n", true)
			is(t, err, context.DeadlineExceeded)
			require.NoError(t, fence.Check(t.Context(), holder, "r", 7))
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			is(t, fence.Check(ctx, tx, "r", 8), context.DeadlineExceeded)
			require.NoError(t, tx.Commit())
			require.NoError(t, holder.Rollback())
			if n := s.number(t, "SELECT SUM(n) FROM work"); n != 7 {
				t.Fatalf("rows whose sum is %d, want 7: a wait that its context ended has undone the transaction", n)
			}
			held := a.take(t, "guarded")
			holder, _ = a.begin(t, sql.LevelRepeatableRead)
			a.guard(t, holder, held)
			tx, _ = a.begin(t, sql.LevelRepeatableRead)
			_, err = tx.Exec("INSERT INTO work VALUES (8)")
			require.NoError(t, err)
			is(t, a.engine.In(tx).Release(t.Context(), held, protocol.Detachment{}, a.beside),
				driver.ErrGuarded)
			require.NoError(t, tx.Commit())
			if n := s.number(t, "SELECT SUM(n) FROM work"); n != 15 {
				t.Fatalf("rows whose sum is %d, want 15: refused, UnlockTx has undone the transaction", n)
			}
			require.NoError(t, holder.Rollback())
		})
	}
}

func TestTheServerSaysWhetherItDetectsCycles(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		tx, _ := a.begin(t, sql.LevelRepeatableRead)
		_, err := tx.Exec("SET SESSION innodb_lock_wait_timeout = 1")
		require.NoError(t, err)
		assert.Equal(t, mysql.Patience(t.Context(), a.engine.In(tx)), 0, "LockTx waits at most for")
	})
}

// Broken by turns that begin innodb_lock_wait_timeout anew: nothing else ends the cycle.
func TestACycleEndsWhereTheServerDetectsNone(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			own := dbtest.Own(t, kind, "--innodb-deadlock-detect=OFF", "--innodb-lock-wait-timeout=1")
			db := own.Empty(t)
			s := server{db, db.SQL(t)}
			s.migrate(t)
			a := s.application(t)
			type result struct {
				tx  *sql.Tx
				err error
			}
			ended := make(chan result, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // for a server that is asked for nothing
			defer cancel()
			var txs []*sql.Tx
			for _, name := range []string{"a", "b"} {
				tx, _ := a.begin(t, sql.LevelRepeatableRead)
				a.locks(t, tx, name, true, true)
				txs = append(txs, tx)
			}
			for i, name := range []string{"b", "a"} {
				go func() {
					_, err := a.lock(ctx, txs[i], name, true)
					ended <- result{txs[i], err}
				}()
			}
			first := <-ended
			if is(t, first.err, driver.ErrRetry); !strings.Contains(first.err.Error(), "innodb_deadlock_detect=OFF") {
				t.Error(first.err)
			}
			require.NoError(t, first.tx.Rollback())
			second := <-ended
			if second.err != nil { // both were in the same turn
				is(t, second.err, driver.ErrRetry)
			}
			require.NoError(t, second.tx.Rollback())
		})
	}
}
