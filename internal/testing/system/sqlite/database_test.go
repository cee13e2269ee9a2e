package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// pinned is a connection on which the application does as it likes.
type pinned struct {
	t *testing.T
	*sql.Conn
}

func (f *fixture) pin() pinned {
	f.t.Helper()
	conn, err := f.pool.Conn(f.t.Context())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { conn.Close() })
	return pinned{f.t, conn}
}

func (p pinned) exec(statement string) {
	p.t.Helper()
	require.NoError(p.t, require.ErrOf(p.ExecContext(p.t.Context(), statement)), statement)
}

// rows leaves a read open, which is a lock on the file in rollback-journal mode.
func (p pinned) rows() *sql.Rows {
	p.t.Helper()
	rows, err := p.QueryContext(p.t.Context(), "SELECT 1 FROM dblock_schema UNION ALL SELECT 2")
	if err != nil || !rows.Next() {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { rows.Close() })
	return rows
}

// anHour is a busy timeout, in milliseconds, that no test would outlast.
const anHour = 3_600_000

func brief(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 50*time.Millisecond)
}

// Broken by a transition that begins with a read.
func TestWhatAWriterHasReadDoesNotChangeBeforeItsCommit(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			other := newFixtureIn(t, journal)
			s := other.session()
			held := other.take("n", s)
			read, tried := false, false
			f := other.spied(func(text string) {
				if read && !tried {
					tried = true
					short, cancel := brief(t)
					defer cancel()
					assert.ErrorIs(t, assert.ErrOf(drivertest.Release(short, other, held, false)),
						context.DeadlineExceeded, "another released in between")
				}
				read = read || strings.HasPrefix(text, "-- name: LockRow ")
			})
			ev := protocol.Event{Name: "n", Kind: "broken"}
			if _, taken, err := drivertest.Break(t.Context(), f, s, "n", f.look(s, "n").Holder, ev); err != nil ||
				!taken || !tried {
				t.Fatal(taken, err, tried)
			}
		})
	}
}

func TestAHeartbeatAndAnExpiryCannotBothWin(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.lapse(s)
	other := open(t, f.path, "")
	app := other.pin()
	app.exec("BEGIN IMMEDIATE")
	app.exec("UPDATE dblock_heartbeats SET expires_at = 9000000000000000") // a heartbeat in flight
	ctx, cancel := brief(t)
	defer cancel()
	if dead, err := f.Expire(ctx, s); dead || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("expired past a heartbeat in flight: %v, %v", dead, err)
	}
	app.exec("COMMIT")
	if dead, err := f.Expire(t.Context(), s); err != nil || dead {
		t.Fatal(dead, err)
	}
}

func TestABusyDatabaseIsWaitedForUntilTheContextEndsAndNoLonger(t *testing.T) {
	for _, timeout := range []int64{0, anHour} {
		t.Run(fmt.Sprint("busy_timeout=", timeout), func(t *testing.T) {
			f := newFixture(t)
			app := f.pin()
			s := f.session()
			f = open(t, f.path, fmt.Sprintf("_pragma=busy_timeout(%d)", timeout))
			f.pool.SetMaxOpenConns(1)
			app.exec("BEGIN IMMEDIATE")
			ctx, cancel := brief(t)
			defer cancel()
			_, taken, err := drivertest.Take(ctx, f, request("n", s))
			if taken || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("taken %v, %v", taken, err)
			}
			require.Equal(t, codeOf(err), sqliteBusy, "the cause is lost", err)
			f.clean()
			if n := f.number("PRAGMA busy_timeout"); n != timeout {
				t.Fatalf("the application's busy timeout is %d now", n)
			}
			done := make(chan error, 1)
			go func() {
				_, taken, err := drivertest.Take(t.Context(), f, request("n", s))
				if err == nil && !taken {
					err = errors.New("not taken")
				}
				done <- err
			}()
			app.exec("COMMIT")
			require.NoError(t, <-done)
			if n := f.number("PRAGMA busy_timeout"); n != timeout {
				t.Fatalf("the application's busy timeout is %d now", n)
			}
		})
	}
}

// While a commit is tried again, whoever reads already may go on, and nobody else can begin.
func TestACommitThatWaitsForAReaderKeepsOthersOut(t *testing.T) {
	app := newFixtureIn(t, "delete")
	s := app.session()
	rows, second := app.pin().rows(), app.pin()
	tries, tried := 0, make(chan struct{})
	f := app.spied(func(text string) {
		if text != "COMMIT" {
			tries = 0 // it gave way, if it had begun
			return
		}
		var n int
		if err := second.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_locks").Scan(&n); tries > 0 &&
			!busy(err) {
			t.Errorf("a new reader got in: %v", err)
		}
		if tries++; tries == 5 {
			close(tried)
		}
	})
	done := make(chan error, 1)
	go func() {
		_, _, err := drivertest.Take(t.Context(), f, request("n", s))
		done <- err
	}()
	select {
	case <-tried:
	case <-time.After(patience):
		t.Error("the commit is not tried again")
	}
	rows.Close()
	require.NoError(t, <-done)
}

func TestAConnectionIsNeverGivenBackInsideATransaction(t *testing.T) {
	ways := map[string]func(f *fixture) error{
		"the statement fails": func(f *fixture) error {
			_, _, err := drivertest.Take(t.Context(), f, request("", "s"))
			return err
		},
		"the caller fails": func(f *fixture) error {
			held := protocol.Held{Name: "n", Session: "s", Token: 1}
			return assert.ErrOf(f.Run(t.Context(), protocol.Announce{Held: held,
				Event: protocol.Event{Name: "n", Kind: "x"}}))
		},
		"the disk is full and SQLite rolls back by itself": func(f *fixture) error {
			f.exec(fmt.Sprintf("PRAGMA max_page_count = %d", f.number("PRAGMA page_count")))
			r := request("n", "s")
			r.Metadata = fmt.Sprintf("%0100000d", 1)
			_, _, err := drivertest.Take(t.Context(), f, r)
			assert.ErrorIs(t, err, driver.ErrUnavailable, "a full disk is")
			return err
		},
	}
	for way, fail := range ways {
		t.Run(way, func(t *testing.T) {
			f := newFixture(t)
			s := f.session()
			pool := openPool(t, f.path, "")
			pool.SetMaxOpenConns(1)
			one := on(t, pool, f.path)
			one.exec("CREATE TEMP TABLE mark (x)")
			require.Error(t, fail(one), "it did not fail")
			one.clean()
			assert.NoError(t, assert.ErrOf(pool.ExecContext(t.Context(), "INSERT INTO mark VALUES (1)")),
				"the connection was thrown away")
			f.take("n", s) // nobody holds the write lock
		})
	}
}

func TestAnInMemoryDatabaseNeedsAPoolOfOne(t *testing.T) {
	for _, dsn := range []string{":memory:", ""} {
		pool, err := sql.Open(driverName, dsn)
		require.NoError(t, err)
		defer pool.Close()
		f := on(t, pool, "")
		require.ErrorIs(t, f.EndSession(t.Context(), "s", false), driver.ErrSchema, dsn, "before the migrations")
		app := f.pin()
		migrated := openPool(t, newFixture(t).path, "")
		var tables string
		err = migrated.QueryRowContext(t.Context(),
			"SELECT group_concat(sql, ';') FROM sqlite_schema WHERE name LIKE 'dblock%'").Scan(&tables)
		require.NoError(t, err)
		app.exec(tables)
		app.exec("INSERT INTO dblock_schema (version, usable_from, database_id) VALUES (1, 1, 'its own')")
		app.Close()
		require.ErrorIs(t, f.OpenSession(t.Context(), driver.Session{ID: "s", TTL: time.Hour}), driver.ErrConfig, dsn,
			"with many connections")
		if err := drivertest.Listen(t.Context(), f, "s", func() {}, nil); !errors.Is(err, driver.ErrConfig) {
			t.Fatalf("%q with many connections: %v", dsn, err)
		}
	}
	pool, err := sql.Open(driverName, ":memory:")
	require.NoError(t, err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	use(t, pool)
}

func TestAnInMemoryDatabaseWithASharedCacheIsOne(t *testing.T) {
	pool, err := sql.Open(driverName, "file:shared?mode=memory&cache=shared")
	require.NoError(t, err)
	defer pool.Close()
	use(t, pool)
}

func TestAPoolOfOneIsEnough(t *testing.T) {
	f := newFixture(t)
	f.pool.SetMaxOpenConns(1)
	use(t, f.pool)
}

func TestWithoutAPoolThereIsNoEngine(t *testing.T) {
	require.ErrorIs(t, inside.Of(sqlite.New(nil)).Validate(), driver.ErrConfig)
	require.NoError(t, newFixture(t).Validate())
}

func TestPurgeWithNothingIdleWaitsForNoWriter(t *testing.T) {
	f := newFixture(t)
	f.release(f.take("n", f.session()), false)
	open(t, f.path, "").pin().exec("BEGIN IMMEDIATE")
	ctx, cancel := brief(t)
	defer cancel()
	if n, next, err := f.Purge(ctx, time.Hour, "", 10); n != 0 || next != "" || err != nil {
		t.Fatal(n, next, err)
	}
}

// Broken by a transaction that is taken for the one before it.
func TestALockedDatabaseTellsOfItsLastCommit(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			f := newFixtureIn(t, journal)
			r := request("n", f.session())
			r.Patient = false
			lock := func() *sql.Tx {
				tx := f.begin()
				_, err := tx.ExecContext(t.Context(), "UPDATE dblock_sessions SET pid = pid + 1")
				require.NoError(t, err)
				return tx
			}
			last := func() string {
				_, _, err := drivertest.Take(t.Context(), f, r)
				require.ErrorIs(t, err, driver.ErrBusy)
				locked := new(driver.Locked)
				if !errors.As(err, &locked) || locked.Commit == "" {
					t.Fatalf("%v: want the last commit", err)
				}
				return locked.Commit
			}
			tx := lock()
			first := last()
			assert.Equal(t, last(), first, "of one transaction")
			require.NoError(t, tx.Commit())
			defer lock().Rollback()
			if last() == first {
				t.Error("of two transactions, the first of which was committed, it is the same")
			}
		})
	}
}
