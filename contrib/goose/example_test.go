package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/contrib/goose"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "goose")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "app.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil { // dblock's own tables
		log.Fatal(err)
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	locker, err := gooselock.New(client.Locker(), "migrations")
	if err != nil {
		log.Fatal(err)
	}
	files := fstest.MapFS{"00001_users.sql": {Data: []byte("-- +goose Up\nCREATE TABLE users (name text);\n")}}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(results), "migration, by one process at a time")
	// Output: 1 migration, by one process at a time
}
