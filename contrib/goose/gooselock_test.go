package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/dblock-go/dblock"
	gooselock "github.com/dblock-go/dblock/contrib/goose"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const name = "migrations"

var migrations = fstest.MapFS{
	"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (n bigint);\n-- +goose Down\nDROP TABLE a;\n")},
	"00002_b.sql": {Data: []byte("-- +goose Up\nCREATE TABLE b (n bigint);\n-- +goose Down\nDROP TABLE b;\n")},
	"00003_c.sql": {Data: []byte("-- +goose Up\nINSERT INTO a VALUES (1);\n-- +goose Down\nDELETE FROM a;\n")},
}

func locker(t *testing.T, c *dblock.Client[*sql.Tx]) *gooselock.Locker {
	l, err := gooselock.New(c.Locker(), name)
	require.NoError(t, err)
	return l
}

func TestOneOfFiveProvidersMigrates(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			db := d.SQL(t)
			return d.provider(t, db, goose.WithLocker(locker(t, d.client(t, db))))
		})
	})
}

func TestOneOfFiveLockersHasTheLock(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		db := d.SQL(t)
		newLocker := func(t *testing.T) lock.Locker {
			c := d.client(t, db)
			l, err := c.Lock(t.Context(), "to have a session, which takes time on a busy machine")
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
			return locker(t, c)
		}
		locktesting.TestConcurrentLocking(t, db, newLocker, 2500*time.Millisecond)
	})
}

func TestProvidersMayShareALocker(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		db := d.SQL(t)
		shared := goose.WithLocker(locker(t, d.client(t, db)))
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider { return d.provider(t, db, shared) })
	})
}

// Under a lock's context an owner enters what it has: here, both would migrate.
func TestTwoProvidersUnderOneLockAreTwo(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		c := d.client(t, d.SQL(t))
		err := c.Do(t.Context(), "deployment", func(ctx context.Context, _ *dblock.Lock) error {
			l, other := locker(t, c), locker(t, c)
			if err := l.Lock(ctx, nil); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, other.Lock(short, nil), dblock.ErrNotAcquired, "the second got")
			return l.Unlock(ctx, nil)
		})
		assert.NoError(t, err)
	})
}

func TestALostLockIsReportedAndKeepsTheNextWaitingUntilThen(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		c := d.client(t, d.SQL(t))
		l := locker(t, c)
		require.NoError(t, l.Lock(t.Context(), nil))
		if n, err := d.client(t, d.SQL(t)).Break(t.Context(), name, "test"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := l.Lock(short, nil); !errors.Is(err, dblock.ErrNotAcquired) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second provider, while the first still migrates: %v", err)
		}
		assert.ErrorIs(t, l.Unlock(t.Context(), nil), dblock.ErrLost, "the first heard")
		require.NoError(t, l.Lock(t.Context(), nil))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, l.Unlock(over, nil))
		assert.ErrorIs(t, l.Unlock(t.Context(), nil), dblock.ErrNotHeld, "one Unlock too many")
	})
}

// The recipe of the package comment.
func TestDoMigratesOverAPoolOfOne(t *testing.T) {
	d := database{dbtest.SQLite(t)}
	db := d.SQL(t)
	db.SetMaxOpenConns(1)
	provider := d.provider(t, db)
	var results []*goose.MigrationResult
	err := d.client(t, db).Do(t.Context(), name, func(ctx context.Context, _ *dblock.Lock) (err error) {
		results, err = provider.Up(ctx)
		return err
	})
	if err != nil || len(results) != len(migrations) {
		t.Errorf("%d migrations, %v", len(results), err)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	d := database{dbtest.SQLite(t)}
	c := d.client(t, d.SQL(t)).Locker()
	assert.ErrorIs(t, assert.ErrOf(gooselock.New(nil, name)), dblock.ErrInvalidOption, "no client")
	assert.ErrorIs(t, assert.ErrOf(gooselock.New(c, "")), dblock.ErrInvalidName)
}
