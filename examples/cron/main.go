// Command cron shows a job that runs once in each slot of time, however many servers ask for it, by
// package jobs. Slots are counted by the database's clock, so that two servers with clocks a second
// apart do not run a short job twice. The first try fails, and is repeated. A second job has a cron
// expression. Its latest time had no run, so that one server runs it at once.
//
//	go run ./examples/cron                                    on an SQLite file of its own
//	go run ./examples/cron -dsn postgres://user:pass@host/db  on PostgreSQL
//	go run ./examples/cron -dsn mysql://user:pass@host/db     on MySQL or MariaDB
//
// server.go shows the use of dblock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/migrate"
)

func main() {
	dsn := flag.String("dsn", "", database.Usage)
	servers := flag.Int("servers", 3, "how many servers there are")
	slot := flag.Duration("slot", time.Second, "how long a slot is")
	slots := flag.Int("slots", 5, "how many reports they write before they end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dsn, *servers, *slot, *slots); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, servers int, slot time.Duration, slots int) (err error) {
	db, err := database.Open(ctx, dsn, "cron")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	fmt.Printf("%d servers write %d nightly reports, in nights of %v, on %s.\n", servers, slots, slot, db.Place)
	job := fmt.Sprintf("nightly report %d", time.Now().UnixNano()) // a new name for each run of this program
	within, stop := context.WithCancel(ctx)
	defer stop()
	var tries atomic.Int64
	report := func() error {
		switch n := tries.Add(1); {
		case n == 1:
			return errPrinter
		case n > int64(slots):
			stop() // so that the example ends
		}
		return nil
	}
	work, working := errgroup.WithContext(within)
	var clients []*dblock.Client[tx]
	for i := range servers {
		var client *dblock.Client[tx] // err is not declared again: Close adds to it
		if client, err = dblock.New(db.EngineOverSQL()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
		clients = append(clients, client)
		work.Go(func() error { return serve(working, client, fmt.Sprintf("server %d", i+1), job, slot, report) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	if err := history(ctx, clients[0], job, slots); err != nil {
		return err
	}
	return catchUp(ctx, clients, fmt.Sprintf("nightly clean-up %d", time.Now().UnixNano()))
}

var errPrinter = errors.New("the printer is out of paper")

// catchUp starts the same schedule on every server, and stops it after the first run.
func catchUp(ctx context.Context, clients []*dblock.Client[tx], job string) error {
	within, stop := context.WithCancel(ctx)
	defer stop()
	work, working := errgroup.WithContext(within)
	for i, client := range clients {
		work.Go(func() error {
			return nightly(working, client, job, func(_ context.Context, l *dblock.Lock, due time.Time) error {
				defer stop() // so that the example ends
				fmt.Printf("Server %d cleans up late, for %s, under token %d\n", i+1, due.Format("2 January 15:04 MST"),
					l.Token())
				return nil
			})
		})
	}
	return work.Wait()
}

// history prints the runs, and checks that no slot was run twice, and that there are as many slots
// as reports.
func history(ctx context.Context, client *dblock.Client[tx], job string, reports int) error {
	fmt.Println("What the database remembers, the latest first:")
	seen := map[int64]bool{}
	for run, err := range jobs.New(client).Runs(ctx, job) {
		if err != nil {
			return err
		}
		if seen[run.Slot] {
			return fmt.Errorf("slot %d was run twice", run.Slot)
		}
		seen[run.Slot] = true
		outcome := "went well"
		if run.Err != "" {
			outcome = "failed: " + run.Err
		}
		if run.Tries > 1 {
			outcome += fmt.Sprintf(", at try %d", run.Tries)
		}
		fmt.Printf("  %s  took %-8v %s\n", run.SlotBegins.Format("15:04:05.000"),
			run.Ended.Sub(run.Began).Round(time.Millisecond), outcome)
	}
	if len(seen) < reports {
		return fmt.Errorf("%d slots were run, of %d", len(seen), reports)
	}
	return nil
}
