// Command fee shows the purpose of a lock. Two service servers, real processes, share one account
// in a database. Each repeatedly reads the balance, computes a fee of 3 %, and writes the new
// balance back. First they do so without a lock, and fees are lost. Then they use a lock, and the
// account is exact to the cent.
//
//	go run ./examples/fee                                      on an SQLite file of its own
//	go run ./examples/fee -crash                               a server is killed while it has the lock, on this host and as on another
//	go run ./examples/fee -pause                               a server is stopped while it has the lock, and wakes up too late
//	go run ./examples/fee -dsn postgres://user:pass@host/db    on PostgreSQL
//	go run ./examples/fee -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// server.go shows the use of dblock, in the method deduct.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
)

// cleanupTimeout bounds the clean-up after the run, or after Ctrl-C.
const cleanupTimeout = 5 * time.Second

// options are the options of the command line.
type options struct {
	dsn      string
	servers  int
	workers  int
	rounds   int
	ttl      time.Duration
	accident accident
	verbose  bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveCommand {
		os.Exit(serveMain())
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	o, err := parseOptions(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fee:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err = play(ctx, o)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "fee: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "fee:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("fee", flag.ExitOnError)
	flags.StringVar(&o.dsn, "dsn", "", database.Usage)
	flags.IntVar(&o.servers, "servers", 2, "service servers, each a process")
	flags.IntVar(&o.workers, "workers", 2, "workers in each server, each a goroutine")
	flags.IntVar(&o.rounds, "rounds", 200, "fees that each server deducts, in each phase")
	flags.DurationVar(&o.ttl, "ttl", 3*time.Second, "after what time without a sign of life a server loses the lock")
	crash := flags.Bool("crash", false, "kill a server with SIGKILL while it has the lock: once as on this "+
		"host, and once as on another one")
	pause := flags.Bool("pause", false,
		"stop a server with SIGSTOP while it has the lock, and let it go on when another has it")
	flags.BoolVar(&o.verbose, "v", false, "show what the servers log")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "A 3 % fee, deducted by several servers from one account: without a lock, then "+
			"with it.\n\n")
		flags.PrintDefaults()
	}
	_ = flags.Parse(args) // it exits
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q; -h shows the flags", flags.Arg(0))
	case o.servers < 1 || o.workers < 1 || o.rounds < 1:
		return o, errors.New("-servers, -workers and -rounds must be at least 1")
	case *crash && *pause:
		return o, errors.New("-crash and -pause: one at a time")
	case *crash:
		o.accident = crashed
	case *pause:
		o.accident = paused
	}
	if o.accident != none && o.servers < 2 {
		return o, fmt.Errorf("-%s needs at least 2 -servers: one must be left to take the lock over", o.accident)
	}
	return o, nil
}

// play opens the database, makes the account, and runs the phases.
func play(ctx context.Context, o options) (err error) {
	opened, err := database.Open(ctx, o.dsn, "fee")
	if err != nil {
		return err
	}
	defer opened.Close()
	db := store{opened}
	if err := db.migrate(ctx); err != nil {
		return err
	}
	release, err := db.onlyRun(ctx, o)
	if err != nil {
		return err
	}
	defer release()
	accounts := db.accounts()
	if err := accounts.create(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, accounts.drop()) }()

	printIntroduction(o, db)
	without, err := runPhase(ctx, phase{options: o, title: "Without the lock"}, db, accounts)
	if err != nil {
		return err
	}
	with, err := runPhase(ctx, phase{options: o, title: "With the lock", locked: true}, db, accounts)
	if err != nil {
		return err
	}
	elsewhere := with
	if o.accident == crashed {
		p := phase{options: o, title: "With the lock, as on another host", locked: true, undetected: true}
		if elsewhere, err = runPhase(ctx, p, db, accounts); err != nil {
			return err
		}
	}
	printServers(with)
	printOutcome(without)
	printOutcome(with)
	if o.accident == crashed {
		printOutcome(elsewhere)
	}
	printLeftovers(db)
	if !with.exact() || !elsewhere.exact() {
		return errors.New("the account is not exact although the lock was used")
	}
	return nil
}
