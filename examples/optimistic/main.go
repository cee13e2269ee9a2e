// Command optimistic sells the tickets of one concert from several counters at once, without a
// lock. Each counter reads the number of tickets left, thinks, and writes one less. First it does
// just that, and tickets are sold twice. Then it uses a version, which is bumped in the transaction
// that writes, and a counter that was overtaken begins again.
//
//	go run ./examples/optimistic                                      on an SQLite file of its own
//	go run ./examples/optimistic -dsn postgres://user:pass@host/db    on PostgreSQL
//	go run ./examples/optimistic -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// sale.go shows the use of package optimistic.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

// cleanupTimeout bounds the clean-up after the run, or after Ctrl-C.
const cleanupTimeout = 5 * time.Second

// options are the options of the command line.
type options struct {
	dsn      string
	counters int
	tickets  int
	think    time.Duration
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parseOptions(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "optimistic:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err = play(ctx, o, os.Stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "optimistic: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "optimistic:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("optimistic", flag.ExitOnError)
	flags.StringVar(&o.dsn, "dsn", "", database.Usage)
	flags.IntVar(&o.counters, "counters", 4, "counters that sell, each a goroutine")
	flags.IntVar(&o.tickets, "tickets", 100, "tickets that there are")
	flags.DurationVar(&o.think, "think", 2*time.Millisecond,
		"how long a customer thinks between seeing a ticket and buying it")
	_ = flags.Parse(args) // it exits
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q; -h shows the flags", flags.Arg(0))
	case o.counters < 1 || o.tickets < 1 || o.think < 0:
		return o, errors.New("-counters and -tickets must be at least 1, and -think not negative")
	}
	return o, nil
}

// play opens the database, and sells out twice.
func play(ctx context.Context, o options, out io.Writer) (err error) {
	db, err := database.Open(ctx, o.dsn, "optimistic")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SQL.SetMaxOpenConns(o.counters)
	if err := migrate.Up(ctx, db.SQL, db.Engine, migrate.Versions); err != nil {
		return err
	}
	s := sale{options: o, Database: db}
	if err := s.create(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.drop()) }()

	fmt.Fprintf(out, "%d counters sell %d tickets. %s.\n", o.counters, o.tickets, db.Place)
	if err := s.sellOut(ctx, s.overwrite); err != nil {
		return err
	}
	fmt.Fprintf(out, "Without a version: %d tickets were sold, %d too many, in %v.\n", s.sold.Load(),
		s.sold.Load()-int64(o.tickets), s.took)
	if err := s.sellOut(ctx, s.bump); err != nil {
		return err
	}
	if s.sold.Load() != int64(o.tickets) {
		return fmt.Errorf("with a version %d tickets of %d were sold", s.sold.Load(), o.tickets)
	}
	fmt.Fprintf(out, "With a version: %d tickets were sold, none twice, in %v; %d times a counter was overtaken and "+
		"began again.\n",
		s.sold.Load(), s.took, s.overtaken.Load())
	return nil
}
