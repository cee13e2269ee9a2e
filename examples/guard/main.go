// Command guard shows long work under a lease, with a result that cannot be written too late. A
// worker takes a lock, works for a while without a transaction, and then writes in one transaction.
// The transaction begins with Guard, which ensures that the lock is still the worker's, and ends
// with UnlockTx, which releases the lock with the commit.
//
//	go run ./examples/guard                                      on an SQLite file of its own
//	go run ./examples/guard -pause                               a worker is stopped past its TTL and wakes up too late
//	go run ./examples/guard -dsn postgres://user:pass@host/db    on PostgreSQL
//	go run ./examples/guard -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// worker.go shows the use of dblock.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

func main() {
	if source, ok := os.LookupEnv(lateWorker); ok {
		exit(beLate(context.Background(), source))
	}
	dsn := flag.String("dsn", "", database.Usage)
	pause := flag.Bool("pause", false, "stop a worker with SIGSTOP for longer than its TTL")
	ttl := flag.Duration("ttl", 2*time.Second, "after what time without a sign of life a worker loses the lock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, *dsn, *pause, *ttl))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, dsn string, pause bool, ttl time.Duration) (err error) {
	db, err := database.Open(ctx, dsn, "guard")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	for _, s := range []string{
		"DROP TABLE IF EXISTS " + table,
		"CREATE TABLE " + table + " (author VARCHAR(20) NOT NULL, token BIGINT NOT NULL)",
	} {
		if _, err := db.SQL.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	defer db.SQL.Exec("DROP TABLE " + table)
	fmt.Printf("On %s.\n", db.Place)
	w, err := newWorker(db, ttl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.client.Close(context.WithoutCancel(ctx))) }()
	if pause {
		err = stopped(ctx, w, ttl)
	} else {
		err = w.work(ctx, "the worker", func(ctx context.Context) {
			select { // the work
			case <-time.After(ttl / 2):
			case <-ctx.Done():
			}
		})
	}
	return errors.Join(err, report(ctx, db.SQL))
}

// report shows the writers: exactly one may write.
func report(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT author, token FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var author string
		var token int64
		if err := rows.Scan(&author, &token); err != nil {
			return err
		}
		fmt.Printf("In the table: written by %s, token %d.\n", author, token)
	}
	if n != 1 {
		return fmt.Errorf("%d rows instead of 1", n)
	}
	return rows.Err()
}
