// Command pgx takes a lock in PostgreSQL: DSN=postgres://… go run ./examples/quickstart/pgx
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate/migratepgx"
	"github.com/dblock-go/dblock/postgres"
)

func main() {
	if err := run(context.Background(), os.Getenv("DSN")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migratepgx.Up(ctx, pool); err != nil {
		return err
	}
	client, err := dblock.New(postgres.New(pool))
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	return client.Do(ctx, "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		fmt.Println("no other client has invoice/42; token", l.Token())
		return nil
	})
}
