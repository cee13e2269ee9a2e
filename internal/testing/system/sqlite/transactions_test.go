package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// modes are the ways in which an application may have its file and its transactions. With a
// rollback journal it needs a busy timeout, so that its commits wait for readers.
var modes = map[string]struct{ journal, query string }{
	"WAL":              {"wal", ""},
	"WAL, immediate":   {"wal", "_txlock=immediate"},
	"rollback journal": {"delete", "_pragma=busy_timeout(1000)"},
}

// inEachMode runs a test with an application that shares the file with another process, other.
func inEachMode(t *testing.T, test func(t *testing.T, f, other *fixture)) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := newFixtureIn(t, mode.journal)
			test(t, open(t, other.path, mode.query), other)
		})
	}
}

// in is the same for a test in a test, so that what it leaves open is closed with it.
func (f *fixture) in(t *testing.T) *fixture { return &fixture{f.Engine, t, f.path, f.pool} }

// begin opens a transaction, and ends it with the test where that did not.
func (f *fixture) begin() *sql.Tx {
	f.t.Helper()
	tx, err := f.pool.BeginTx(context.Background(), nil)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// usable checks that a transaction goes on: what it writes is there after the commit.
func (f *fixture) usable(tx *sql.Tx) {
	f.t.Helper()
	const count = "SELECT count(*) FROM sqlite_schema WHERE name = 'application'"
	require.NoError(f.t, require.ErrOf(tx.ExecContext(f.t.Context(), "CREATE TABLE application (n)")),
		"the transaction cannot go on")
	if err := tx.Commit(); err != nil || f.number(count) != 1 {
		f.t.Fatalf("the transaction was not committed: %v", err)
	}
	f.exec("DROP TABLE application")
}

func read(t *testing.T, tx *sql.Tx) {
	t.Helper()
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_sessions").Scan(&n))
}

func nobody(string, int, any) bool { return false }

// steps are those in the caller's transaction that must lock the database.
var steps = map[string]func(ctx context.Context, f *fixture, tx *sql.Tx, h protocol.Held) error{
	"Guard": func(ctx context.Context, f *fixture, tx *sql.Tx, h protocol.Held) error {
		return f.In(tx).Guard(ctx, h, nil)
	},
	"ReleaseTx": func(ctx context.Context, f *fixture, tx *sql.Tx, h protocol.Held) error {
		return f.In(tx).Release(ctx, h, protocol.Detachment{}, nil)
	},
	"LockTx": func(ctx context.Context, f *fixture, tx *sql.Tx, h protocol.Held) error {
		_, locked, err := f.In(tx).Lock(ctx, "free", nobody, true, nil)
		if err == nil && !locked {
			err = errors.New("not locked")
		}
		return err
	},
}

// Broken by leaving any of its conditions out of IsHeld.
func TestGuardLooksAtTheSessionTheTokenAndTheFixedLease(t *testing.T) {
	losses := map[string]string{
		"the session is dead":    "UPDATE dblock_sessions SET dead = true",
		"the session is nowhere": "DELETE FROM dblock_sessions",
		"granted again": "UPDATE dblock_locks SET token = token + 1, first_token = first_token + 1, " +
			"last_token = last_token + 1",
		"another session's": "UPDATE dblock_locks SET session_id = (SELECT s.id FROM dblock_sessions s WHERE " +
			"s.id <> session_id)",
		"free":                    "UPDATE dblock_locks SET session_id = NULL",
		"the fixed lease is over": "UPDATE dblock_locks SET expires_at = 1",
		"purged":                  "DELETE FROM dblock_locks",
	}
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		for loss, statement := range losses {
			t.Run(loss, func(t *testing.T) {
				f, other := f.in(t), other.in(t)
				other.exec("DELETE FROM dblock_sessions")
				other.session()
				r := request("n", other.session())
				r.Lease = time.Hour
				grant, taken, err := drivertest.Take(t.Context(), other, r)
				if err != nil || !taken {
					t.Fatal(taken, err)
				}
				held := protocol.Held{Name: "n", Session: r.Session, Token: grant.Token}
				tx := f.begin()
				require.NoError(t, f.In(tx).Guard(t.Context(), held, nil), "Guard of a lock that is held")
				f.usable(tx)
				other.exec(statement)
				tx = f.begin()
				require.ErrorIs(t, f.In(tx).Guard(t.Context(), held, nil), driver.ErrNotHeld, "Guard")
				f.usable(tx)
				other.exec("DELETE FROM dblock_locks")
			})
		}
	})
}

// Broken by taking a snapshot that is too old for a database that is busy.
func TestATransactionThatHasReadBeforeAnotherWroteIsToBeBegunAnew(t *testing.T) {
	for name, step := range steps {
		for _, inFlight := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", still writing: ", inFlight), func(t *testing.T) {
				f := newFixtureIn(t, "wal")
				other := open(t, f.path, "")
				held := f.take("n", f.session())
				tx := f.begin()
				read(t, tx)
				writer := other.pin()
				writer.exec("BEGIN IMMEDIATE")
				writer.exec("UPDATE dblock_locks SET token = token + 1, first_token = first_token + 1, last_token = " +
					"last_token + 1")
				done := make(chan error, 1)
				if inFlight {
					go func() { done <- step(t.Context(), f, tx, held) }()
					stays(t, done)
				}
				writer.exec("COMMIT")
				if !inFlight {
					done <- step(t.Context(), f, tx, held)
				}
				err := <-done
				if !errors.Is(err, driver.ErrRetry) || !strings.Contains(err.Error(), "begin it again") {
					t.Fatalf("%v: want ErrRetry, and what to do", err)
				}
				require.Equal(t, codeOf(err), sqliteBusySnapshot, "the cause is lost", err)
				read(t, tx)
			})
		}
	}
}

// stays checks that something still waits after longer than a TryLock is patient.
func stays[T any](t *testing.T, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("it did not wait: %v", v)
	case <-time.After(100 * time.Millisecond):
	}
}

// Broken by leaving the application's busy timeout as it is, and by not putting it back.
func TestAStepWaitsForAnotherWriterUntilItsContextEndsAndNoLonger(t *testing.T) {
	for _, journal := range journals {
		for _, timeout := range []int64{0, anHour} {
			for name, step := range steps {
				t.Run(fmt.Sprint(journal, " ", timeout, " ", name), func(t *testing.T) {
					t.Parallel()
					other := newFixtureIn(t, journal)
					f := open(t, other.path, fmt.Sprintf("_pragma=busy_timeout(%d)", timeout))
					held := other.take("n", other.session())
					writer := other.pin()
					writer.exec("BEGIN IMMEDIATE")
					tx := f.begin()
					ctx, cancel := brief(t)
					defer cancel()
					require.ErrorIs(t, step(ctx, f, tx, held), context.DeadlineExceeded, "behind another")
					done := make(chan error, 1)
					go func() { done <- step(t.Context(), f, tx, held) }()
					stays(t, done)
					if err := insist(t.Context(), func() error { // readers may be in the way of this
						_, err := writer.ExecContext(t.Context(), "COMMIT")
						return err
					}); err != nil {
						t.Fatal(err)
					}
					require.NoError(t, <-done)
					var n int64
					if err := tx.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&n); err != nil ||
						n != timeout {
						t.Fatalf("the application's busy timeout is %d now, %v", n, err)
					}
					f.usable(tx)
				})
			}
		}
	}
}

// Broken by a ReleaseTx that does not count the grant for the session that it comes from, that
// rings at once, or that announces nothing.
func TestAListenerHearsOfReleaseTxAtTheCommitAndNotBefore(t *testing.T) {
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		for _, whose := range []string{"the same session", "another's"} {
			t.Run(whose, func(t *testing.T) {
				f, other := f.in(t), other.in(t)
				s := other.session()
				held := other.take(whose, s)
				waiter := s
				if whose != "the same session" {
					waiter = other.session()
				}
				attempt := other.enqueue(whose, waiter)
				woken := f.listen(waiter).Hints
				for _, finish := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
					tx := f.begin()
					require.NoError(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
					stays(t, woken)
					if state := other.look("", whose); state.Holder.Grant.Token != held.Token {
						t.Fatalf("before the end of the transaction: %+v", state)
					}
					require.NoError(t, finish(tx))
				}
				select {
				case <-woken:
				case <-time.After(patience):
					t.Fatal("the listener does not hear of the commit")
				}
				if state := other.look("", whose); state.Holder.Attempt != attempt || state.Waiters != 0 {
					t.Fatalf("after the commit: %+v", state)
				}
			})
		}
	})
}

// Broken by leaving the savepoint out.
func TestAReleaseTxThatFailsLeavesNothingBehind(t *testing.T) {
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		held := other.take("n", other.session())
		attempt := other.enqueue("n", other.session())
		other.exec("CREATE TRIGGER dblock_full BEFORE UPDATE ON dblock_locks BEGIN SELECT RAISE(FAIL, 'full'); END")
		tx := f.begin()
		require.Error(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
		f.usable(tx)
		other.exec("DROP TRIGGER dblock_full")
		if next := other.release(held, true); next.Attempt != attempt {
			t.Fatalf("handed to %+v", next)
		}
		tx = f.begin()
		require.ErrorIs(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil), driver.ErrNotHeld,
			"a second release")
		f.usable(tx)
	})
}

// Broken by locking before looking.
func TestLockTxFindsALeaseWithoutLockingTheDatabase(t *testing.T) {
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		held := other.take("n", other.session())
		other.enqueue("n", other.session())
		tx := f.begin()
		for _, wait := range []bool{true, false} {
			state, locked, err := f.In(tx).Lock(t.Context(), "n", nobody, wait, nil)
			if err != nil || locked || state.Holder.Grant.Token != held.Token || state.Waiters != 1 {
				t.Fatalf("LockTx of a lease: %+v, %v, %v", state, locked, err)
			}
		}
		if strings.Contains(t.Name(), "immediate") { // it has the database from the start
			return
		}
		next := other.release(held, true)
		held.Session, held.Token = next.Session, next.Grant.Token
		other.exec("UPDATE dblock_locks SET session_id = NULL, attempt = '', waiters = 1")
		if state, locked, err := f.In(tx).Lock(t.Context(), "n", nobody, true, nil); err != nil || locked ||
			state.Waiters != 1 {
			t.Fatalf("LockTx of a queue: %+v, %v, %v", state, locked, err)
		}
		other.exec("UPDATE dblock_locks SET waiters = 0")
		if _, locked, err := f.In(tx).Lock(t.Context(), "n", nobody, true, nil); err != nil || !locked {
			t.Fatalf("LockTx of a free name: %v, %v", locked, err)
		}
		f.usable(tx)
	})
}

// Broken by relying on what was seen before the lock.
func TestALeaseTakenBetweenLookingAndLockingIsSeenUnderTheLock(t *testing.T) {
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		if strings.Contains(t.Name(), "immediate") { // nobody comes between
			return
		}
		for _, wait := range []bool{true, false} {
			held := other.take("n", other.session())
			next := other.session()
			looked := 0
			own := func(string, int, any) bool {
				looked++
				if looked == 1 {
					other.release(held, true)
					held = other.take("n", next)
				}
				return looked == 1
			}
			tx := f.begin()
			state, locked, err := f.In(tx).Lock(t.Context(), "n", own, wait, nil)
			if locked || looked != 2 || state.Holder.Session != next || wait != errors.Is(err, driver.ErrRetry) ||
				!wait && err != nil {
				t.Fatalf("wait %v: %+v, %v, %v after %d looks", wait, state, locked, err, looked)
			}
			f.usable(tx)
			other.release(held, true)
		}
	})
}

// Broken by looking through the pool all the same.
func TestLockTxLocksFirstWhereThePoolHasNoSecondConnection(t *testing.T) {
	inEachMode(t, func(t *testing.T, f, other *fixture) {
		held := other.take("n", other.session())
		for size := range 3 {
			if size == 0 {
				continue
			}
			f.pool.SetMaxOpenConns(size)
			conns := make([]*sql.Conn, size-1)
			for i := range conns {
				conns[i] = f.pin().Conn
			}
			tx := f.begin()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if _, locked, err := f.In(tx).Lock(ctx, "free", nobody, true, nil); err != nil || !locked {
				t.Fatalf("of %d connections: %v, %v", size, locked, err)
			}
			state, locked, err := f.In(tx).Lock(ctx, "n", nobody, false, nil)
			if err != nil || locked || state.Holder.Grant.Token != held.Token {
				t.Fatalf("of %d connections, TryLockTx of a lease: %+v, %v, %v", size, state, locked, err)
			}
			if _, locked, err = f.In(tx).Lock(ctx, "n", nobody, true, nil); locked ||
				!errors.Is(err, driver.ErrRetry) {
				t.Fatalf("of %d connections, LockTx of a lease: %v, %v", size, locked, err)
			}
			cancel()
			require.NoError(t, tx.Commit())
			for _, c := range conns {
				c.Close()
			}
		}
	})
}

// Broken by waiting as for anybody else.
func TestWhoeverDoesNotWaitGivesUpBehindALongTransaction(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			other := newFixtureIn(t, journal)
			var begun atomic.Int64
			f := other.spied(func(text string) {
				if text == "BEGIN IMMEDIATE" {
					begun.Add(1)
				}
			})
			s := f.session()
			tx := f.begin()
			writer := other.pin()
			writer.exec("BEGIN IMMEDIATE")
			r := request("n", s)
			r.Patient = false
			busy := func(who string) {
				t.Helper()
				if _, taken, err := drivertest.Take(t.Context(), f, r); taken || !errors.Is(err, driver.ErrBusy) {
					t.Fatalf("Take %s: %v, %v", who, taken, err)
				}
			}
			busy("alone")
			err := require.ErrOf(driver.Do(t.Context(), f, protocol.Reenter{Request: r}))
			require.ErrorIs(t, err, driver.ErrBusy, "Reenter")
			state, locked, err := f.In(tx).Lock(t.Context(), "n", nobody, false, nil)
			if locked || err != nil || state.Holder.Session != "" {
				t.Fatalf("TryLockTx: %+v, %v, %v", state, locked, err)
			}
			waited, before := make(chan error, 1), begun.Load()
			go func() {
				_, _, err := drivertest.Take(t.Context(), f, request("m", s))
				waited <- err
			}()
			dbtest.Eventually(t, "it to be the other's turn", func() bool { return begun.Load() > before })
			busy("behind one of its own that waits")
			stays(t, waited)
			writer.exec("ROLLBACK")
			require.NoError(t, <-waited)
			f.usable(tx)
			f.take("n", s)
		})
	}
}

func TestABatchWaitsForATransactionOnlyWhereItMay(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	tx, err := open(t, f.path, "_txlock=immediate").pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	r := request("n", s)
	r.Patient = false
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if grants, _, err := drivertest.Batch(ctx, f, []protocol.Request{request("m", s), r}, nil); !errors.Is(err,
		driver.ErrBusy) || grants != nil {
		t.Fatalf("%+v, %v", grants, err)
	}
}

func TestASharerIsGuardedAndReleasesInATransaction(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	r := shared("n", s, 2, 2)
	r.Lease = time.Hour
	held := f.share(r)
	waiter := shared("n", s, 1, 2)
	f.queue(waiter)
	nobody := func(string, int, any) bool { return false }
	for _, commit := range []bool{false, true} {
		tx, err := f.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		stale := held
		stale.Shared = false
		require.ErrorIs(t, f.In(tx).Guard(t.Context(), stale, nil), driver.ErrNotHeld, "guarded as a whole")
		require.NoError(t, f.In(tx).Guard(t.Context(), held, nil))
		require.NoError(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		require.NoError(t, err)
		f.sound()
	}
	state := f.look(s, "n")
	if len(state.Granted) != 1 || state.Granted[0].Attempt != waiter.Attempt {
		t.Fatalf("%+v", state)
	}
	tx, err := f.pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	// A share is in the way of a transaction, also one's own.
	state, locked, err := f.In(tx).Lock(t.Context(), "n", func(string, int, any) bool { return true }, false, nil)
	if err != nil || locked || state.Holder.Attempt != waiter.Attempt {
		t.Fatalf("%+v, %v, %v", state, locked, err)
	}
	if _, locked, err = f.In(tx).Lock(t.Context(), "m", nobody, false, nil); err != nil || !locked {
		t.Fatalf("a name that nobody has: %v, %v", locked, err)
	}
}
