// Command transfer shows a lock inside a transaction of the application. Clerks move money between
// accounts, and each transfer locks its two accounts by name, in the transaction that changes them.
// There is nothing to unlock and nothing to renew: the lock ends with the transaction, committed or
// rolled back.
//
//	go run ./examples/transfer                                      on an SQLite file of its own
//	go run ./examples/transfer -dsn postgres://user:pass@host/db    on PostgreSQL, over pgx
//	go run ./examples/transfer -dsn postgres://… -sql               on PostgreSQL, over database/sql
//	go run ./examples/transfer -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// pgx.go and sql.go show the use of dblock.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

const (
	accounts = 10
	deposit  = 1000
	table    = "dblock_example_transfer" // the example's own
)

// bank moves money in transactions of its own.
type bank interface {
	// transfer moves an amount if there is enough, and reports whether it did.
	transfer(ctx context.Context, from, to int, amount int64) (bool, error)
	close(ctx context.Context) error
}

func main() {
	dsn := flag.String("dsn", "", database.Usage)
	overSQL := flag.Bool("sql", false, "on PostgreSQL, use database/sql instead of pgx")
	clerks := flag.Int("clerks", 8, "how many move money at once")
	transfers := flag.Int("transfers", 50, "how many transfers each of them makes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dsn, *overSQL, *clerks, *transfers); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, overSQL bool, clerks, transfers int) (err error) {
	db, err := database.Open(ctx, dsn, "transfer")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	if err := open(ctx, db.SQL); err != nil {
		return err
	}
	defer db.SQL.Exec("DROP TABLE " + table)
	b, err := bankOn(db, overSQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()

	fmt.Printf("%d clerks make %d transfers each between %d accounts with %d each, on %s.\n", clerks, transfers,
		accounts, deposit, db.Place)
	work, working := errgroup.WithContext(ctx)
	made := make([]int, clerks)
	for clerk := range clerks {
		work.Go(func() error {
			for range transfers {
				from, to := rand.IntN(accounts)+1, rand.IntN(accounts)+1
				done, err := b.transfer(working, from, to, rand.Int64N(300)+1)
				if err != nil {
					return err
				}
				if done {
					made[clerk]++
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return report(ctx, db.SQL, made)
}

func bankOn(db database.Database, overSQL bool) (bank, error) {
	if db.Engine == migrate.Postgres && !overSQL {
		client, err := dblock.New(postgres.New(db.Pool))
		return pgxBank{db.Pool, client}, err
	}
	client, err := dblock.New(db.EngineOverSQL())
	return sqlBank{db, client}, err
}

// open makes new accounts.
func open(ctx context.Context, db *sql.DB) error {
	statements := []string{
		"DROP TABLE IF EXISTS " + table,
		"CREATE TABLE " + table + " (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
	}
	for id := 1; id <= accounts; id++ {
		statements = append(statements, fmt.Sprintf("INSERT INTO %s (id, balance) VALUES (%d, %d)", table, id, deposit))
	}
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func report(ctx context.Context, db *sql.DB, made []int) error {
	rows, err := db.QueryContext(ctx, "SELECT id, balance FROM "+table+" ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	var total int64
	for rows.Next() {
		var id, balance int64
		if err := rows.Scan(&id, &balance); err != nil {
			return err
		}
		total += balance
		fmt.Printf("  account %2d  %6d\n", id, balance)
		if balance < 0 {
			err = fmt.Errorf("account %d is overdrawn", id)
		}
	}
	transfers := 0
	for _, n := range made {
		transfers += n
	}
	fmt.Printf("%d transfers were made, the others had too little. Total: %d of %d.\n", transfers, total,
		accounts*deposit)
	if total != accounts*deposit {
		err = errors.Join(err, errors.New("money was made or lost"))
	}
	return errors.Join(err, rows.Err())
}

// account returns the lock's name for an account.
func account(id int) string { return fmt.Sprintf("account/%d", id) }
