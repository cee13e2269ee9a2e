package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// The examples of dblock that need transactions, where there is a driver to run them.

// openDatabase makes a SQLite file in a temporary folder, with the tables of dblock.
func openDatabase() (db *sql.DB, done func()) {
	folder, err := os.MkdirTemp("", "dblock-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(folder, "app.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrate.Up(context.Background(), db, migrate.SQLite); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(folder)
	}
}

// must ends an example that cannot go on.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// The transaction that writes holds the lock, and ends it.
func Example_lockTx() {
	db, closeDatabase := openDatabase()
	defer closeDatabase()
	client := must(dblock.New(sqlite.New(db)))
	ctx := context.Background()
	defer client.Close(ctx)
	must(db.ExecContext(ctx, "CREATE TABLE accounts (id text PRIMARY KEY, balance integer)"))
	must(db.ExecContext(ctx, "INSERT INTO accounts VALUES ('a', 100), ('b', 0)"))

	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	if err := client.LockTx(ctx, tx, "account/a", "account/b"); err != nil {
		log.Fatal(err)
	}
	must(tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 'a'"))
	must(tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 10 WHERE id = 'b'"))
	fmt.Println(tx.Commit()) // the write, and the end of both locks
	// Output: <nil>
}

// Long work under a lock, then a write that cannot come too late.
func Example_guard() {
	db, closeDatabase := openDatabase()
	defer closeDatabase()
	client := must(dblock.New(sqlite.New(db)))
	ctx := context.Background()
	defer client.Close(ctx)
	must(db.ExecContext(ctx, "CREATE TABLE reports (month text PRIMARY KEY, body text)"))
	write := func(lock *dblock.Lock, body string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := client.Guard(ctx, tx, lock); err != nil {
			return err // ErrLost: nothing is written
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO reports VALUES ('2026-11', ?)", body); err != nil {
			return err
		}
		if err := client.UnlockTx(ctx, tx, lock); err != nil {
			return err
		}
		return tx.Commit() // the write and the release, or neither
	}

	slow := must(client.Lock(ctx, "report/2026-11"))
	must(client.Break(ctx, "report/2026-11", "it took too long"))
	fast := must(client.Lock(ctx, "report/2026-11"))
	fmt.Println("the holder writes:", write(fast, "by the second"))
	fmt.Println("the one before is lost:", errors.Is(write(slow, "by the first"), dblock.ErrLost))
	// Output:
	// the holder writes: <nil>
	// the one before is lost: true
}
