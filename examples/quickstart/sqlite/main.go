// Command sqlite takes a lock in a file that all processes of one machine can open: go run
// ./examples/quickstart/sqlite
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func main() {
	file := filepath.Join(os.TempDir(), "dblock-quickstart.db")
	if err := run(context.Background(), file); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
		return err
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	return client.Do(ctx, "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		fmt.Println("no other client has invoice/42; token", l.Token())
		return nil
	})
}
