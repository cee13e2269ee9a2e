package orm

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// app is an application on one of the libraries.
type app interface {
	Client(engine Engine) (*Client, error)
	Withdraw(ctx context.Context, client *Client, id string, amount int64) error
	SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error
}

// bank is an application, another client that is in its way, and the account.
type bank struct {
	*testing.T
	db          *sql.DB
	app         app
	mine, other *Client
}

func (d database) bank(t *testing.T, a app) *bank {
	b := &bank{T: t, db: d.open(t), app: a}
	var err error
	if b.mine, err = a.Client(d.engine); err != nil {
		t.Fatal(err)
	}
	if b.other, err = dblock.New(d.engine(b.db)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		assert.NoError(t, errors.Join(b.mine.Close(context.Background()), b.other.Close(context.Background())))
	})
	return b
}

func (b *bank) has(want int64) {
	b.Helper()
	var balance int64
	require.NoError(b,
		b.db.QueryRowContext(b.Context(), "SELECT balance FROM accounts WHERE id = 'alice'").Scan(&balance))
	assert.Equal(b, balance, want, "the account has")
}

func TestAnApplicationLocksInItsTransactions(t *testing.T) {
	each(t, func(t *testing.T, d database, a app) {
		b := d.bank(t, a)
		require.NoError(t, a.Withdraw(t.Context(), b.mine, "alice", 30))
		assert.ErrorIs(t, a.Withdraw(t.Context(), b.mine, "alice", 100), ErrFunds)
		b.has(70)
		lock, err := b.other.Lock(t.Context(), "account/alice")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		assert.Error(t, a.Withdraw(ctx, b.mine, "alice", 30), "it withdraws although another has the lock")
		b.has(70)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, a.Withdraw(t.Context(), b.mine, "alice", 30))
		b.has(40)
	})
}

func TestAnApplicationGuardsItsTransactions(t *testing.T) {
	each(t, func(t *testing.T, d database, a app) {
		b := d.bank(t, a)
		lock, err := b.mine.Lock(t.Context(), "account/alice")
		require.NoError(t, err)
		require.NoError(t, a.SetBalance(t.Context(), b.mine, lock, "alice", 7))
		b.has(7)
		require.NoError(t, require.ErrOf(b.other.Break(t.Context(), "account/alice", "a test")))
		assert.ErrorIs(t, a.SetBalance(t.Context(), b.mine, lock, "alice", 8), dblock.ErrLost)
		b.has(7)
		_ = lock.Unlock(t.Context())
	})
}

// A client listens over pgx's stdlib, whatever library is above it, and polls over lib/pq.
func TestAClientListensThroughTheLibrarysPool(t *testing.T) {
	each(t, func(t *testing.T, d database, a app) {
		b := d.bank(t, a)
		lock, err := b.other.Lock(t.Context(), "account/alice")
		require.NoError(t, err)
		granted := make(chan error, 1)
		go func() {
			l, err := b.mine.Lock(t.Context(), "account/alice")
			if err == nil {
				err = l.Unlock(t.Context())
			}
			granted <- err
		}()
		for waiting := false; !waiting; {
			require.NoError(t,
				b.db.QueryRowContext(t.Context(), "SELECT count(*) = 1 FROM dblock_waiters").Scan(&waiting))
		}
		_, polls := a.(SQL)
		listens := d.byItself || !polls
		// it joins the queue without
		for deadline := time.Now().Add(10 * time.Second); listens && !b.mine.Stats().Listening &&
			time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if b.mine.Stats().Listening != listens {
			t.Errorf("it listens: %t", !listens)
		}
		require.NoError(t, lock.Unlock(t.Context()))
		assert.NoError(t, <-granted)
	})
}

func TestGormWritesInATransactionThatItHasNotBegun(t *testing.T) {
	each(t, func(t *testing.T, d database, a app) {
		g, ok := a.(Gorm)
		if !ok {
			return
		}
		b := d.bank(t, a)
		tx, err := b.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		within := g.in(t.Context(), tx)
		for range 2 { // the second statement is in the transaction, too
			require.NoError(t, within.Model(&Account{ID: "alice"}).Update("balance", 5).Error)
		}
		require.NoError(t, tx.Rollback())
		b.has(100)
	})
}
