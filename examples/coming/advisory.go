package coming

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/postgres"
)

// Vacuum runs a task under a lock of the server's own, unless another process runs it. locker is
// the client of postgres.Advisory or mysql.Named.
func Vacuum(ctx context.Context, locker dblock.Locker, task func(ctx context.Context) error) error {
	lock, err := locker.TryLock(ctx, "vacuum")
	if errors.Is(err, dblock.ErrNotAcquired) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return task(lock.Context()) // ends with dblock.ErrLost when the connection that holds the lock ends
}

// Withdraw holds an account's advisory lock until its transaction ends.
func Withdraw(
	ctx context.Context, pool *pgxpool.Pool, client *postgres.AdvisoryClient, account string,
	withdraw func(ctx context.Context, tx pgx.Tx) error,
) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := client.LockTx(ctx, tx, dblock.Name("account", account)); err != nil {
			return err
		}
		return withdraw(ctx, tx)
	})
}
