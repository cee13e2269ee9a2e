package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// attach has a pool's one connection see another file as a database named aside.
func attach(t *testing.T, pool *sql.DB, path string) {
	t.Helper()
	pool.SetMaxOpenConns(1)
	_, err := pool.ExecContext(t.Context(), "ATTACH ? AS \"a\"\"side\"", path)
	require.NoError(t, err)
}

// The tables are in a database that the application attaches to its own, which other processes open
// as it is.
func TestLocksInAnAttachedDatabase(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			locks := newFixtureIn(t, journal)
			for name, main := range map[string]string{"a file": newFile(t, journal), "memory": ":memory:"} {
				f := on(t, openPool(t, main, ""), locks.path)
				attach(t, f.pool, locks.path)
				s := f.session()
				held := f.take("n", s)
				if state := locks.look(locks.session(), "n"); state.Holder.Session != s {
					t.Fatalf("from %s: the others see %+v", name, state)
				}
				other := locks.session()
				attempt := locks.enqueue("n", other)
				if next := f.release(held, true); next.Attempt != attempt {
					t.Fatalf("from %s: handed to %+v", name, next)
				}
				if _, err := drivertest.Release(t.Context(), locks, protocol.Held{Name: "n", Session: other,
					Token: locks.look(other, "n").Holder.Grant.Token}, true); err != nil {
					t.Fatal(err)
				}
				if schema, err := f.Schema(t.Context()); err != nil || schema.Check() != nil {
					t.Errorf("from %s: %+v, %v", name, schema, err)
				}
			}
			f := on(t, openPool(t, newFile(t, journal), ""), locks.path)
			attach(t, f.pool, locks.path)
			held := f.take("n", f.session())
			require.NoError(t, os.Rename(locks.path, locks.path+".old"))
			assert.ErrorIs(t, assert.ErrOf(drivertest.Release(t.Context(), f, held, false)), driver.ErrReplaced,
				"the attached file is gone")
		})
	}
}

// What is missing is found in whichever database it should be.
func TestAnAttachedDatabaseWithoutTheTablesIsErrSchema(t *testing.T) {
	f := on(t, openPool(t, newFile(t, "wal"), ""), "")
	attach(t, f.pool, newFile(t, "wal"))
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrSchema) {
		t.Error(err)
	}
	locks := newFixture(t)
	f = on(t, openPool(t, newFile(t, "wal"), ""), "")
	attach(t, f.pool, locks.path)
	f.take("n", f.session())
	locks.exec("ALTER TABLE dblock_locks RENAME COLUMN metadata TO grasps")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); err == nil || errors.Is(err, driver.ErrSchema) {
		t.Errorf("the right version with a column missing: %v", err)
	}
	locks.exec("DROP TABLE dblock_waiters")
	waiting := []driver.Waiting{{Name: "n", Attempt: "a"}}
	assert.ErrorIs(t, assert.ErrOf(f.WaitGraph(t.Context(), waiting)), driver.ErrSchema)
}

// An application writes to a database of its own beside dblock's, in one transaction: what Guard
// and LockTx promise is about the database that has the tables.
func TestATransactionOverTwoDatabases(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			f := newFixtureIn(t, journal)
			f.pool.SetMaxOpenConns(1)
			data := filepath.Join(t.TempDir(), "data.db")
			attach(t, f.pool, data)
			f.exec(`CREATE TABLE "a""side".data (n)`)
			s := f.session()
			held := f.take("n", s)
			other := open(t, f.path, "")

			tx := f.begin()
			// first, so that only the other database is locked
			_, err := tx.ExecContext(t.Context(), "INSERT INTO data VALUES (1)")
			require.NoError(t, err)
			require.NoError(t, f.In(tx).Guard(t.Context(), held, nil))
			other.exec("PRAGMA busy_timeout = 0")
			ctx, cancel := brief(t)
			defer cancel()
			if _, taken, err := drivertest.Break(ctx, other, "", "n", protocol.Holder{Session: s,
				Grant: protocol.Grant{Token: held.Token}}, protocol.Event{Kind: "broken"}); err == nil {
				t.Errorf("the guarded transaction is open, and the lock was taken away: %v", taken)
			}
			require.NoError(t, f.In(tx).Release(t.Context(), held, protocol.Detachment{}, nil))
			require.NoError(t, tx.Rollback())
			if state := other.look(s, "n"); state.Holder.Session != s {
				t.Errorf("rolled back, and released: %+v", state)
			}
			if n := f.number("SELECT count(*) FROM data"); n != 0 {
				t.Errorf("rolled back, and %d rows written", n)
			}
		})
	}
}

// Settings with which locks cannot be kept are refused in words, and not after the first failure.
func TestSettingsThatCannotKeepLocksAreRefused(t *testing.T) {
	for query, word := range map[string]string{
		"_pragma=journal_mode(OFF)":       "journal_mode=OFF",
		"_pragma=locking_mode(EXCLUSIVE)": "SetMaxOpenConns(1)",
	} {
		path := newFixtureIn(t, "delete").path
		f := open(t, path, query)
		for name, call := range map[string]func() error{
			"OpenSession": func() error { return f.OpenSession(t.Context(), driver.Session{ID: "s", TTL: time.Hour}) },
			"Take":        func() error { _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); return err },
		} {
			if err := call(); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %s: %v", query, name, err)
			}
		}
		require.NoError(t, f.pool.Close())
	}
	f := open(t, newFixtureIn(t, "delete").path, "_pragma=locking_mode(EXCLUSIVE)")
	f.pool.SetMaxOpenConns(1)
	f.release(f.take("n", f.session()), false)
}

// A database of UTF-16 stores other bytes for a name, and connections that do not trust its schema
// refuse some functions in its views.
func TestOtherEncodingsAndSchemasThatAreNotTrusted(t *testing.T) {
	for _, encoding := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		path := filepath.Join(t.TempDir(), "locks.db")
		pool := openPool(t, path, "_pragma=encoding('"+encoding+
			"')&_pragma=journal_mode(WAL)&_pragma=trusted_schema(0)")
		require.NoError(t, migrate.Up(t.Context(), pool, migrate.SQLite))
		use(t, pool)
		var is string
		require.NoError(t, pool.QueryRowContext(t.Context(), "PRAGMA encoding").Scan(&is))
		require.Equal(t, is, encoding, "the database is of")
		f, other := on(t, pool, path), on(t, openPool(t, path, ""), path)
		mine, theirs := f.session(), other.session()
		f.exec("DELETE FROM dblock_locks")
		names := []string{"a", "über", "\uffee", "😀", strings.Repeat("ü", 127)}
		for _, name := range names {
			f.take(name, mine)
			if _, taken, err := drivertest.Take(t.Context(), other, request(name, theirs)); err != nil || taken {
				t.Errorf("%s: %q was taken twice: %t, %v", encoding, name, taken, err)
			}
		}
		var filter driver.Filter
		var listed []string // in the order of the database's own bytes
		for range len(names) + 1 {
			page, err := f.Names(t.Context(), filter, 2)
			require.NoError(t, err)
			if listed = append(listed, page...); len(page) > 0 {
				filter.After = page[len(page)-1]
			}
		}
		slices.Sort(listed)
		if slices.Sort(names); !slices.Equal(listed, names) {
			t.Errorf("%s: %q, want %q", encoding, listed, names)
		}
	}
}

// Journals differ in what they cost and in who waits for whom, and not in what a lock is.
func TestEveryOtherJournalKeepsLocks(t *testing.T) {
	for i, query := range []string{"journal_mode(TRUNCATE)", "journal_mode(PERSIST)", "journal_mode(MEMORY)",
		"journal_mode(WAL)"} {
		for j, synchronous := range []string{"OFF", "NORMAL", "FULL", "EXTRA"} {
			if (i+j)%2 == 0 {
				continue // each is tried with two of the others
			}
			pool := openPool(t, filepath.Join(t.TempDir(), "locks.db"), "_pragma="+query+"&_pragma=synchronous("+
				synchronous+")")
			require.NoError(t, migrate.Up(t.Context(), pool, migrate.SQLite))
			use(t, pool)
		}
	}
}
