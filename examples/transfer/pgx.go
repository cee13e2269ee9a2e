package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
)

type pgxBank struct {
	pool   *pgxpool.Pool
	client *dblock.Client[pgx.Tx]
}

func (b pgxBank) close(ctx context.Context) error { return b.client.Close(ctx) }

// transfer reads two balances, computes, and writes: without the lock, one of two simultaneous
// transfers would be lost.
func (b pgxBank) transfer(ctx context.Context, from, to int, amount int64) (done bool, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := b.client.LockTx(ctx, tx, account(from), account(to)); err != nil {
			return err
		}
		var there, here int64
		if err := tx.QueryRow(ctx, "SELECT balance FROM "+table+" WHERE id = $1", from).Scan(&there); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT balance FROM "+table+" WHERE id = $1", to).Scan(&here); err != nil {
			return err
		}
		if there < amount || from == to {
			return nil
		}
		if _, err := tx.Exec(ctx, "UPDATE "+table+" SET balance = $1 WHERE id = $2", there-amount, from); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE "+table+" SET balance = $1 WHERE id = $2", here+amount, to)
		done = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("from %d to %d: %w", from, to, err)
	}
	return done, nil
}
