package coming

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// Charge charges an invoice, and lets one process at a time do so.
func Charge(
	ctx context.Context, client *Client, invoice string, charge func(ctx context.Context, lock *Lock) error,
) error {
	err := client.Do(ctx, dblock.Name("invoice", invoice), func(ctx context.Context, lock *Lock) error {
		return charge(ctx, lock) // ctx ends with dblock.ErrLost if the lock is lost
	}, dblock.WaitAtMost(8*time.Second))
	if errors.Is(err, dblock.ErrNotAcquired) {
		return fmt.Errorf("charged elsewhere: %w", err) // the error names the holder, and since when
	}
	return err
}

// Settle marks the invoice as paid, unless the lock was lost meanwhile.
func Settle(ctx context.Context, client *Client, db *sql.DB, lock *Lock, invoice string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.Guard(ctx, tx, lock); err != nil {
		return err // dblock.ErrLost: another process may hold the lock
	}
	if _, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = 1 WHERE id = ?", invoice); err != nil {
		return err
	}
	return tx.Commit()
}
