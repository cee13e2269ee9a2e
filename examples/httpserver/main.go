// Command httpserver shows a server that answers requests under locks, reports failures of a lock
// in the status, and shuts down in the right order.
//
//	go run ./examples/httpserver                                    on an SQLite file of its own
//	go run ./examples/httpserver -dsn postgres://user:pass@host/db  on PostgreSQL
//	go run ./examples/httpserver -dsn mysql://user:pass@host/db     on MySQL or MariaDB
//
// Then, in two terminals: curl -i -X POST http://localhost:8080/invoices/42
//
// server.go shows the use of dblock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

func main() {
	dsn := flag.String("dsn", "", database.Usage)
	address := flag.String("address", "localhost:8080", "where it listens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		err = run(ctx, *dsn, listener, bill)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "httpserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, listener net.Listener, work work) error {
	db, err := database.Open(ctx, dsn, "httpserver")
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer db.Close() // the pool is closed last
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return errors.Join(err, listener.Close())
	}
	client, err := dblock.New(db.EngineOverSQL())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Printf("http://%s answers, on %s.\n", listener.Addr(), db.Place)
	return serve(ctx, listener, client, handler(client, work))
}

// bill takes a while.
func bill(ctx context.Context, invoice string, lock *dblock.Lock) error {
	fmt.Printf("invoice %s is billed under token %d\n", invoice, lock.Token())
	select {
	case <-time.After(5 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
