// Command advisory shows locks that need no tables: PostgreSQL's advisory locks. Two clients, which
// could also be two processes, take a lock in turn, read together and write alone, and count in
// transactions. Then one of them loses its connection, and its lock reports that. At last two
// applications that call pg_try_advisory_lock by themselves hold one lock at once, in three ways,
// and the same is tried with dblock.
//
//	go run ./examples/advisory -dsn postgres://user:pass@host/db
//	go run ./examples/advisory -dsn postgres://… -pooler postgres://…   also through a PgBouncer
//	go run ./examples/advisory                                          on an SQLite file of its own
//
// SQLite has no such locks. There the same steps use locks in tables, except for the loss: those
// locks do not end with a connection.
//
// steps.go shows the use of dblock, splitbrain.go the two holders.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const table = "dblock_example_advisory" // the example's own

func main() {
	dsn := flag.String("dsn", "", "`database`: postgres://user:pass@host:port/db (default: an SQLite file of its "+
		"own, with locks in tables)")
	pooler := flag.String("pooler", "", "the same `database` through a pooler that lends connections by the "+
		"transaction (default: that is left out)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dsn, *pooler); err != nil {
		fmt.Fprintln(os.Stderr, "advisory:", err)
		os.Exit(1)
	}
}

var errNotPostgres = errors.New("advisory locks are PostgreSQL's: -dsn postgres://user:pass@host:port/db, or none " +
	"for SQLite; locks in tables, on any database, are in examples/fee, examples/transfer and examples/guard")

func run(ctx context.Context, dsn, pooler string) (err error) {
	db, err := database.Open(ctx, dsn, "advisory")
	if err != nil {
		return err
	}
	defer db.Close()
	if db.Engine == migrate.MySQL {
		return errNotPostgres
	}
	if _, err := db.SQL.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
		return err
	}
	for _, statement := range []string{"CREATE TABLE " + table + " (n INTEGER NOT NULL)",
		"INSERT INTO " + table + " (n) VALUES (0)"} {
		if _, err := db.SQL.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	defer db.SQL.Exec("DROP TABLE " + table)

	if db.Engine == migrate.SQLite {
		fmt.Printf("On %s.\nSQLite has no advisory locks: these are locks in tables. With -dsn postgres://… they "+
			"are PostgreSQL's own.\n", db.Place)
		if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
			return err
		}
		return play(ctx, func() (client[*sql.Tx], error) {
			c, err := dblock.New(sqlite.New(db.SQL))
			if err != nil {
				return nil, err
			}
			return tables[*sql.Tx]{c.Locker(), c}, nil
		}, steps[*sql.Tx]{transaction: sqlTransaction(db.SQL), count: countSQL})
	}
	fmt.Printf("On %s. Nothing was migrated: there are no tables of dblock's.\n", db.Place)
	quiet := postgres.AdvisoryLogger(slog.New(slog.DiscardHandler)) // the steps print the loss
	err = play(ctx, func() (client[pgx.Tx], error) { return postgres.Advisory(db.Pool, quiet) }, steps[pgx.Tx]{
		transaction: pgxTransaction(db.Pool), count: countPgx,
		seen: func(ctx context.Context) error { return showLock(ctx, db.Pool) },
		cut:  func(ctx context.Context) error { return cutConnection(ctx, db.Pool) },
	})
	if err != nil {
		return err
	}
	return splitBrains{db: db, pooler: pooler}.show(ctx)
}

// play opens two clients and goes through the steps.
func play[TX any](ctx context.Context, open func() (client[TX], error), s steps[TX]) (err error) {
	for i := range s.clients {
		if s.clients[i], err = open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.clients[i].Close(context.WithoutCancel(ctx))) }()
	}
	for _, step := range []func(context.Context) error{s.turns, s.readers, s.transactions, s.loss} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
