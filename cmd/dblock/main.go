// Command dblock shows the holders of dblock's locks and their waiters, revokes locks by hand, and
// runs other commands under them.
//
//	go install github.com/dblock-go/dblock/cmd/dblock@latest
//	export DBLOCK_DSN=postgres://app@db.example.com/orders
//	dblock ls
//	dblock run backup -- pg_dump orders
//
// The files build on each other in this order: dsn.go and mycnf.go (the database), database.go (its
// pool and its client), print.go (tables and JSON), and one file for each command; of run:
// process_*.go (a command and its children), supervise.go (ends the command with the lock), run.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	_ "time/tzdata" // zones of --tz, in a container image without any files

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
)

// Exit statuses of the command itself.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitNotFree = 75 // another client has the lock; of sysexits.h: try again later
)

func main() {
	ctx, release := interruptible()
	c := root(&options{getenv: os.Getenv, stderr: os.Stderr, release: release})
	os.Exit(status(ctx, os.Stderr, c.ExecuteContext(ctx)))
}

// interruptible returns a context that a signal ends. After release no signal ends it: when release
// returns, all earlier signals have.
func interruptible() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(done)
		if s, is := <-signals; is {
			cancel(interrupted{s.(syscall.Signal)})
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// interrupted is the cause of a command that a signal has ended.
type interrupted struct{ syscall.Signal }

func (i interrupted) Error() string { return "ended by a signal: " + i.Signal.String() }

// status prints an error, and returns the exit status for it.
func status(ctx context.Context, stderr io.Writer, err error) int {
	var by interrupted
	var s statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		if s.err != nil {
			complain(stderr, s.err)
		}
		return s.status
	case errors.As(context.Cause(ctx), &by):
		return 128 + int(by.Signal)
	}
	complain(stderr, advised(err))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// complain prints an error. The library's errors begin with the same prefix.
func complain(stderr io.Writer, err error) {
	fmt.Fprintln(stderr, "dblock:", strings.TrimPrefix(err.Error(), "dblock: "))
}

// advised adds the advice for this command to an error.
func advised(err error) error {
	if misfit := new(driver.SchemaError); errors.As(err, &misfit) {
		return errors.New(misfit.Text(`"dblock migrate up" ("dblock migrate status" shows the versions)`))
	}
	if errors.Is(err, dblock.ErrInvalidOption) {
		return errors.New(flagsOf.Replace(err.Error()))
	}
	return err
}

func root(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "dblock",
		Short: "Show the holders of locks and their waiters, and run commands under locks",
		Long: `dblock shows the locks that applications keep with github.com/dblock-go/dblock in their database, revokes them by hand, and
runs commands under them.

The database is that of --dsn or DBLOCK_DSN:

  postgres://user@host/database   also postgresql://; the rest as libpq has it (PGPASSWORD, ~/.pgpass, PGSSLMODE, ...)
  mysql://user@host/database      also the driver's own form, user@tcp(host:3306)/database; the rest from ~/.my.cnf, [client]
  sqlite://path                   a file

or of the PG environment variables if PGHOST, PGSERVICE or PGDATABASE is set, or with --local a SQLite file of this user.
A password belongs into DBLOCK_DSN or into those files: the arguments of a process show in lists of processes.

The exit status is 0, or 1 after a failure, 2 for wrong arguments, 75 where the lock of run or hold is not free, or 128 and the number of
the signal that ended the command. run ends with the status of its own command.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetFlagErrorFunc(invalidFlag)
	f := c.PersistentFlags()
	f.StringVar(&o.dsn, "dsn", "", "the database, without a password (default: $DBLOCK_DSN)")
	f.StringVar(&o.schema, "schema", "",
		"where the tables are: a schema of PostgreSQL, a database of MySQL (default: the connection's own)")
	f.BoolVar(&o.local, "local", false, "a SQLite file in this user's state folder")
	f.BoolVar(&o.json, "json", false, "one JSON object a line")
	durationVar(f, &o.timeout, "timeout", "", defaultTimeout,
		"give up after this time; 0: never; without --timeout, commands that only look give up after 3s without a "+
			"first answer, and each look of a watch after 3s")
	o.given = f.Changed
	c.AddCommand(ls(o), show(o), why(o), sessions(o), listJobs(o), runs(o), events(o), key(o), execute(o), keep(o),
		renew(o), release(o), revoke(o), ask(o), reap(o), migrations(o), doctor(o), ui(o), showVersion(o))
	c.InitDefaultHelpCmd()
	c.InitDefaultCompletionCmd()
	strict(c)
	return c
}
