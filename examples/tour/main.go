// Command tour shows, one after the other, the abilities of a lock in a table beyond those of a
// mutex: readers and writers, many names at once, detected deadlocks, requests to holders and
// revocation, and inspection. Each stop is a file.
//
//	go run ./examples/tour                                    on an SQLite file of its own
//	go run ./examples/tour -stop deadlock                     one stop only
//	go run ./examples/tour -dsn postgres://user:pass@host/db  on PostgreSQL
//	go run ./examples/tour -dsn mysql://user:pass@host/db     on MySQL or MariaDB
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

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

// client is one of two clients that stand for two processes: neither knows of the other.
type client = *dblock.Client[*sql.Tx]

var stops = []struct {
	name string
	show func(ctx context.Context, a, b client) error
}{
	{"readers", readers},
	{"lockall", lockAll},
	{"deadlock", deadlock},
	{"revoke", revoke},
	{"inspect", look},
}

func main() {
	dsn := flag.String("dsn", "", database.Usage)
	stop := flag.String("stop", "", "the only stop to visit: readers, lockall, deadlock, revoke or inspect")
	flag.Parse()
	ctx, done := signal.NotifyContext(context.Background(), os.Interrupt)
	defer done()
	if err := run(ctx, *dsn, *stop); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn, only string) (err error) {
	db, err := database.Open(ctx, dsn, "tour")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	var clients [2]client
	for i := range clients {
		quiet := slog.New(slog.DiscardHandler) // losses are intended here
		if clients[i], err = dblock.New(db.EngineOverSQL(), dblock.WithApp(fmt.Sprint("process ", i+1)),
			dblock.WithEvents(), dblock.WithLogger(quiet)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, clients[i].Close(context.WithoutCancel(ctx))) }()
	}
	visited := 0
	for _, s := range stops {
		if only != "" && only != s.name {
			continue
		}
		fmt.Printf("\n%s\n", s.name)
		if err := s.show(ctx, clients[0], clients[1]); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		visited++
	}
	if visited == 0 {
		return fmt.Errorf("no stop %q", only)
	}
	return nil
}

// say prints a line of the tour.
func say(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }
