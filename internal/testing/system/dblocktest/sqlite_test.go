package dblocktest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/optimistic"
)

// bank is an application: it moves money while it has a lock.
type bank struct {
	db    *sql.DB
	locks *dblock.Client[*sql.Tx]
}

func newBank(t *testing.T, d *dblocktest.Database) bank {
	t.Helper()
	if _, err := d.DB.ExecContext(t.Context(),
		"CREATE TABLE IF NOT EXISTS money (amount integer); DELETE FROM money; "+
			"INSERT INTO money VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	return bank{d.DB, d.Client}
}

// pay writes what it does in a transaction, after locked.
func (b bank) pay(ctx context.Context, amount int, locked func(tx *sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := locked(tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE money SET amount = amount + ?", amount); err != nil {
		return err
	}
	return tx.Commit()
}

func (b bank) has(t *testing.T, want int) {
	t.Helper()
	var amount int
	if err := b.db.QueryRowContext(t.Context(), "SELECT amount FROM money").Scan(&amount); err != nil ||
		amount != want {
		t.Errorf("it has %d, %v: want %d", amount, err, want)
	}
}

func TestCodeWithTransactionsIsTestedOnAFile(t *testing.T) {
	ctx := t.Context()
	d := dblocktest.SQLite(t)
	b, second, stranger := newBank(t, d), d.Another(t), dblocktest.SQLite(t)
	lock, err := b.locks.Lock(ctx, "bank")
	require.NoError(t, err)
	guarded := func(tx *sql.Tx) error { return b.locks.Guard(ctx, tx, lock) }
	assert.NoError(t, b.pay(ctx, 1, guarded))
	assert.ErrorIs(t, assert.ErrOf(second.Client.TryLock(ctx, "bank")), dblock.ErrNotAcquired,
		"another process of the database has it, too")
	assert.NoError(t, stranger.Client.TryLockTx(ctx, begin(t, stranger.DB), "bank"),
		"a database of its own knows of it")
	if n, err := second.Client.Break(ctx, "bank", "for the test", lock.Token()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	assert.ErrorIs(t, b.pay(ctx, 2, guarded), dblock.ErrLost, "paid without the lock")
	if err := b.pay(ctx, 4, func(tx *sql.Tx) error { return second.Client.LockTx(ctx, tx, "bank") }); err != nil {
		t.Error(err)
	}
	if lock, err = second.Client.Lock(ctx, "bank"); err != nil {
		t.Fatal(err)
	}
	if err := b.pay(ctx, 8, func(tx *sql.Tx) error { return second.Client.UnlockTx(ctx, tx, lock) }); err != nil {
		t.Error(err)
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	assert.NoError(t, assert.ErrOf(b.locks.Lock(within, "bank")), "UnlockTx has not released it")
	b.has(t, 1+4+8)
}

func TestItHasTheTablesOfFenceAndOptimistic(t *testing.T) {
	ctx := t.Context()
	b := newBank(t, dblocktest.SQLite(t))
	if err := b.pay(ctx, 1, func(tx *sql.Tx) error { return fence.Check(ctx, tx, "money", 8) }); err != nil {
		t.Error(err)
	}
	if err := b.pay(ctx, 2, func(tx *sql.Tx) error { return fence.Check(ctx, tx, "money", 7) }); !errors.Is(err,
		fence.ErrStale) {
		t.Error(err)
	}
	if err := b.pay(ctx, 4, func(tx *sql.Tx) error {
		version, err := optimistic.Read(ctx, tx, "money")
		if err != nil {
			return err
		}
		return optimistic.Bump(ctx, tx, "money", version)
	}); err != nil {
		t.Error(err)
	}
	b.has(t, 1+4)
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}
