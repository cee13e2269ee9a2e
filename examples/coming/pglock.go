package coming

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock"
)

// Import reads what is new in a feed, which takes minutes, and saves it with the feed's position.
func Import(
	ctx context.Context, client *Client, db *sql.DB, feed string,
	read func(ctx context.Context) (position int64, err error),
	save func(ctx context.Context, tx *sql.Tx, position int64) error,
) error {
	return client.Do(ctx, dblock.Name("import", feed), func(ctx context.Context, lock *Lock) error {
		position, err := read(ctx) // ctx ends with dblock.ErrLost if the lock is lost
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := client.Guard(ctx, tx, lock); err != nil {
			return err
		}
		if err := save(ctx, tx, position); err != nil {
			return err
		}
		return tx.Commit()
	})
}
