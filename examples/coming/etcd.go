package coming

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/fence"
)

// Rebuild builds an index and publishes it. The commit that publishes it also hands the lock over.
func Rebuild(
	ctx context.Context, client *Client, db *sql.DB, build func(ctx context.Context) error,
	publish func(ctx context.Context, tx *sql.Tx) error,
) error {
	return client.Do(ctx, "index", func(ctx context.Context, lock *Lock) error {
		if err := build(ctx); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := client.Guard(ctx, tx, lock); err != nil { // in place of Txn().If(mutex.IsOwner())
			return err
		}
		if err := publish(ctx, tx); err != nil {
			return err
		}
		if err := client.UnlockTx(ctx, tx, lock); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// PublishElsewhere writes to a database that does not have the lock, and refuses a lower token than
// that database has seen.
func PublishElsewhere(
	ctx context.Context, elsewhere *sql.DB, token int64, publish func(ctx context.Context, tx *sql.Tx) error,
) error {
	tx, err := elsewhere.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Check(ctx, tx, "index", token); err != nil {
		return err // fence.ErrStale: a later holder has written
	}
	if err := publish(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
