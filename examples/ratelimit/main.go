// Command ratelimit shows permits. An API that tolerates three calls at once is called by many
// workers, each with a client of its own, as if in several processes. A bulk export, which needs
// all three permits, joins the same queue: later small calls do not overtake it, however many they
// are.
//
//	go run ./examples/ratelimit                                    on an SQLite file of its own
//	go run ./examples/ratelimit -dsn postgres://user:pass@host/db  on PostgreSQL
//	go run ./examples/ratelimit -dsn mysql://user:pass@host/db     on MySQL or MariaDB
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
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

func main() {
	dsn := flag.String("dsn", "", database.Usage)
	clients := flag.Int("clients", 3, "how many clients there are")
	workers := flag.Int("workers", 4, "how many workers each of them has")
	calls := flag.Int("calls", 6, "how many calls each worker makes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dsn, *clients, *workers, *calls); err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, clients, workers, calls int) (err error) {
	db, err := database.Open(ctx, dsn, "ratelimit")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	fmt.Printf("%d clients with %d workers each make %d calls each to an API that tolerates %d at once, on %s.\n",
		clients, workers, calls, limit, db.Place)
	var remote api
	work, working := errgroup.WithContext(ctx)
	for range clients {
		var client *dblock.Client[*sql.Tx] // err is not declared again: Close adds to it
		if client, err = dblock.New(db.EngineOverSQL()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
		for range workers {
			work.Go(func() error {
				for range calls {
					if err := call(working, client, &remote, 1); err != nil {
						return err
					}
				}
				return nil
			})
		}
		work.Go(func() error { return call(working, client, &remote, limit) }) // the bulk export
	}
	if err := work.Wait(); err != nil {
		return err
	}
	small, bulk, most := remote.report()
	fmt.Printf("%d calls and %d bulk exports were made; the API never saw more than %d at once.\n", small, bulk, most)
	if most > limit {
		return fmt.Errorf("the API saw %d calls at once", most)
	}
	return nil
}

// api counts its callers.
type api struct {
	mu                sync.Mutex // guards the fields below
	now, most         int
	smallDone, allBig int
}

func (a *api) enter(units int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now += units
	a.most = max(a.most, a.now)
}

func (a *api) leave(units int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now -= units
	if units == limit {
		a.allBig++
	} else {
		a.smallDone++
	}
}

func (a *api) report() (small, bulk, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.smallDone, a.allBig, a.most
}
