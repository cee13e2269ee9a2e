package postgres

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
)

// Tables need no session of the database's. LISTEN does, so that waiters poll.
func TestTableLocksWorkThroughAPoolerOfTransactions(t *testing.T) {
	db := dbtest.Postgres(t)
	through := db.PgBouncer(t, dbtest.PoolTransactions)
	open := func() *dblock.Client[pgx.Tx] {
		client, err := dblock.New(New(through.Pool(t)), dblock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return client
	}
	one, two := open(), open()
	held, err := one.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.TryLock(t.Context(), "n"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("%v", err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := two.Lock(t.Context(), "n")
		if err == nil && l.Token() <= held.Token() {
			err = errors.New("the token did not rise")
		}
		if err == nil {
			err = l.Unlock(t.Context())
		}
		got <- err
	}()
	direct := db.Pool(t)
	for deadline, queued := time.After(10*time.Second), 0; queued != 1; {
		if err := direct.QueryRow(t.Context(), "SELECT count(*) FROM dblock_waiters").Scan(&queued); err != nil {
			t.Fatal(err)
		}
		select {
		case <-deadline:
			t.Fatal("nobody queues")
		case <-time.After(2 * time.Millisecond):
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it was not handed over")
	}
}
