package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/postgres"
)

func clientOf[TX any](t *testing.T, engine dblock.Engine[TX], options ...dblock.Option) *dblock.Client[TX] {
	t.Helper()
	c, err := dblock.New(engine, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// refused reports whether an error says which client_encoding would do.
func refused(err error) bool {
	return errors.Is(err, dblock.ErrConfig) && strings.Contains(err.Error(), "set client_encoding=UTF8")
}

// A name that one pool has taken is not free for another, whatever client_encoding their
// connections have. A pool whose connections convert what they read is refused, and no other.
func TestNoEncodingMakesTwoLocksOfOne(t *testing.T) {
	txtest.EachEncoding(t, dbtest.Encoded, func(t *testing.T, db, odd dbtest.Database, names []string) {
		usual := clientOf(t, postgres.NewSQL(db.SQL(t)))
		for what, other := range map[string]dblock.Locker{
			"pgx":        clientOf(t, postgres.New(odd.Pool(t))).Locker(),
			"WithinPool": clientOf(t, postgres.New(odd.Pool(t), postgres.WithinPool())).Locker(),
			"sql":        clientOf(t, postgres.NewSQL(odd.SQL(t))).Locker(),
		} {
			for _, name := range names {
				l, err := usual.Lock(t.Context(), name)
				require.NoError(t, err)
				if _, err := other.TryLock(t.Context(), name); !errors.Is(err, dblock.ErrNotAcquired) &&
					!refused(err) || refused(err) != converts(t, odd) {
					t.Errorf("%s, %s: taken twice, or: %v", what, name, err)
				}
				require.NoError(t, l.Unlock(t.Context()))
			}
		}
	})
}

// converts reports whether the server converts what connections read.
func converts(t *testing.T, db dbtest.Database) (yes bool) {
	t.Helper()
	require.NoError(t, db.SQL(t).QueryRowContext(t.Context(), `SELECT getdatabaseencoding() <> 'SQL_ASCII' AND pg_client_encoding() <> 'UTF8'
		AND (getdatabaseencoding(), pg_client_encoding()) <> ('UTF8', 'SQL_ASCII')`).Scan(&yes))
	return yes
}

// The application sets another client_encoding on connections that it has borrowed from the pool,
// or the role gets one while the client lives.
func TestNoRowIsMadeUnderANameThatAConnectionHasChanged(t *testing.T) {
	db := dbtest.Encoded(t, "UTF8")
	usual := clientOf(t, postgres.NewSQL(db.SQL(t)))
	l, err := usual.Lock(t.Context(), "über")
	require.NoError(t, err)
	pool, overSQL := db.Pool(t), db.SQL(t)
	overSQL.SetMaxOpenConns(3)
	change := map[string]func(){
		"pgx": func() {
			for _, conn := range pool.AcquireAllIdle(t.Context()) {
				_, err := conn.Exec(t.Context(), "SET client_encoding = LATIN1")
				require.NoError(t, err)
				conn.Release()
			}
		},
		"sql": func() {
			_, err := overSQL.ExecContext(t.Context(), "SET client_encoding = LATIN1")
			require.NoError(t, err)
		},
	}
	for what, odd := range map[string]dblock.Locker{
		"pgx": clientOf(t, postgres.New(pool)).Locker(), "sql": clientOf(t, postgres.NewSQL(overSQL)).Locker(),
	} {
		first, err := odd.TryLock(t.Context(), "ascii")
		require.NoError(t, err)
		require.NoError(t, first.Unlock(t.Context()))
		change[what]()
		if _, err := odd.TryLock(t.Context(), "über"); !errors.Is(err, dblock.ErrNotAcquired) && !refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	require.NoError(t, l.Unlock(t.Context()))
}

// A transaction of the application's may be of a pool that the client knows nothing of. It finds
// the lock, or is refused and can go on.
func TestNoEncodingTouchesANameInATransaction(t *testing.T) {
	txtest.EachEncoding(t, dbtest.Encoded, func(t *testing.T, db, odd dbtest.Database, names []string) {
		pool, overSQL := odd.Pool(t), odd.SQL(t)
		t.Run("pgx", func(t *testing.T) {
			inTransactions(t, postgres.New(db.Pool(t)), names[len(names)-1], converts(t, odd),
				func() (pgx.Tx, func() error) {
					tx, err := pool.Begin(t.Context())
					require.NoError(t, err)
					return tx, func() error { return tx.Commit(t.Context()) }
				})
		})
		t.Run("sql", func(t *testing.T) {
			inTransactions(t, postgres.NewSQL(db.SQL(t)), names[len(names)-1], converts(t, odd),
				func() (*sql.Tx, func() error) {
					tx, err := overSQL.BeginTx(t.Context(), nil)
					require.NoError(t, err)
					return tx, tx.Commit
				})
		})
	})
}

func inTransactions[TX any](
	t *testing.T, engine dblock.Engine[TX], name string, converts bool, begin func() (TX, func() error),
) {
	c, waiting := clientOf(t, engine), clientOf(t, engine)
	is := func(what string, err, want error) {
		t.Helper()
		if converts && !refused(err) || !converts && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	l, err := c.Lock(t.Context(), name, dblock.Metadata(map[string]string{"wer": "Jürgen"}))
	require.NoError(t, err)
	next := make(chan error, 1)
	go func() {
		l, err := waiting.Lock(t.Context(), name, dblock.Metadata(map[string]string{"wer": "Zoë"}))
		if err == nil {
			err = l.Unlock(t.Context())
		}
		next <- err
	}()
	for {
		info, err := inspect.New(c).Lock(t.Context(), name)
		require.NoError(t, err)
		if info.Queued == 1 {
			break
		}
	}
	tx, commit := begin()
	is("TryLockTx", c.TryLockTx(t.Context(), tx, name), dblock.ErrNotAcquired)
	is("Guard", c.Guard(t.Context(), tx, l), nil)
	is("UnlockTx", c.UnlockTx(t.Context(), tx, l), nil)
	require.NoError(t, commit())
	if converts {
		require.NoError(t, l.Unlock(t.Context()))
	}
	require.NoError(t, <-next)
	_ = l.Unlock(t.Context())

	tx, commit = begin()
	err = c.LockTx(t.Context(), tx, name)
	is("LockTx", err, nil)
	if err == nil {
		assert.ErrorIs(t, assert.ErrOf(waiting.TryLock(t.Context(), name)), dblock.ErrNotAcquired)
	}
	require.NoError(t, commit())
}

// A character that the encoding of the database lacks is the error of the call that has it.
func TestTextsThatAnEncodingDoesNotHave(t *testing.T) {
	db := dbtest.Encoded(t, "LATIN1").ClientEncoding(t, "UTF8")
	for what, c := range map[string]dblock.Locker{
		"pgx": clientOf(t, postgres.New(db.Pool(t))).Locker(), "sql": clientOf(t, postgres.NewSQL(db.SQL(t))).Locker(),
	} {
		held, err := c.Lock(t.Context(), "über")
		require.NoError(t, err)
		for text, try := range map[string]func() (dblock.Handle, error){
			"name": func() (dblock.Handle, error) { return c.TryLock(t.Context(), "日本") },
			"metadata": func() (dblock.Handle, error) {
				return c.TryLock(t.Context(), "m", dblock.Metadata(map[string]string{"a": "日"}))
			},
			"owner": func() (dblock.Handle, error) { return c.TryLock(t.Context(), "o", dblock.Owner("h", "日")) },
		} {
			if _, err := try(); !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
				"encoding of the database") {
				t.Errorf("%s: %s: %v", what, text, err)
			}
		}
		require.NoError(t, held.Unlock(t.Context()))
	}
	if _, err := clientOf(t, postgres.New(db.Pool(t)), dblock.WithApp("日本")).TryLock(t.Context(), "n"); !errors.Is(err,
		dblock.ErrConfig) {
		t.Error(err)
	}
}
