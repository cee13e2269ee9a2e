// Command mysql takes a lock in MySQL or MariaDB: DSN='user:password@tcp(host:3306)/database' go
// run ./examples/quickstart/mysql
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
)

func main() {
	if err := run(context.Background(), os.Getenv("DSN")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.MySQL); err != nil {
		return err
	}
	client, err := dblock.New(mysql.New(db))
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	return client.Do(ctx, "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		fmt.Println("no other client has invoice/42; token", l.Token())
		return nil
	})
}
