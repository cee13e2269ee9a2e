// Command dblock shows who holds the locks of package dblock and who waits for them, takes them
// away by hand, and runs other commands under them.
//
//	go install github.com/dblock-go/dblock/cmd/dblock@latest
//	export DBLOCK_DSN=postgres://app@db.example.com/orders
//	dblock ls
//	dblock run backup -- pg_dump orders
//
// Files of this package stand on each other in this order: dsn.go and mycnf.go (which database),
// database.go (its pool and its client), print.go (tables and JSON), and one file for each command;
// of run: process_*.go (a command and what it starts), supervise.go (it ends with the lock),
// run.go.
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

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/internal/driver"
)

// The exit statuses of the command itself.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, release := interruptible()
	c := root(&options{getenv: os.Getenv, stderr: os.Stderr, release: release, limits: usual})
	os.Exit(status(ctx, os.Stderr, c.ExecuteContext(ctx)))
}

// interruptible returns a context that a signal ends. After release no signal ends it any more:
// when release returns, those that came before have.
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

// interrupted is why a command was cut off.
type interrupted struct{ syscall.Signal }

func (i interrupted) Error() string { return "ended by a signal: " + i.Signal.String() }

// status says what went wrong, and returns the exit status for it.
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
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// complain says what went wrong. The library's errors begin as this does.
func complain(stderr io.Writer, err error) {
	fmt.Fprintln(stderr, "dblock:", strings.TrimPrefix(err.Error(), "dblock: "))
}

// usageError is a command line that says nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// advised is an error that says what to do here.
func advised(err error) error {
	if misfit := new(driver.SchemaError); errors.As(err, &misfit) {
		return errors.New(misfit.Text(`"dblock migrate up" ("dblock migrate status" shows the versions)`))
	}
	return err
}

func root(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "dblock",
		Short: "Who holds which lock, since when, and who waits; and commands that hold one",
		Long: `dblock shows the locks that applications keep with github.com/dblock-go/dblock in their database, takes them away by hand,
and runs commands while it holds one.

The database is that of --dsn or DBLOCK_DSN:

  postgres://user@host/database   also postgresql://; the rest as libpq has it (PGPASSWORD, ~/.pgpass, PGSSLMODE, ...)
  mysql://user@host/database      also the driver's own form, user@tcp(host:3306)/database; the rest from ~/.my.cnf, [client]
  sqlite://path                   a file

or of the PG environment variables where PGHOST, PGSERVICE or PGDATABASE is set, or with --local a SQLite file of this user's own.
A password belongs into DBLOCK_DSN or into those files: the arguments of a process show in lists of processes.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.PersistentFlags()
	f.StringVar(&o.dsn, "dsn", "", "the database, without a password (default: $DBLOCK_DSN)")
	f.StringVar(&o.schema, "schema", "",
		"where the tables are: a schema of PostgreSQL, a database of MySQL (default: the connection's own)")
	f.BoolVar(&o.local, "local", false, "a SQLite file in this user's state folder")
	f.BoolVar(&o.json, "json", false, "one JSON object a line")
	f.DurationVar(&o.timeout, "timeout", defaultTimeout,
		"give up after this time; 0: never; unless this is given, what only looks gives up after 3s without a first "+
			"answer, and each look of a watch after 3s")
	o.given = f.Changed
	c.AddCommand(ls(o), show(o), why(o), sessions(o), listJobs(o), runs(o), events(o), key(o), execute(o), keep(o),
		renew(o), release(o), unlock(o), ask(o), reap(o), migrations(o), doctor(o), ui(o))
	return c
}

// arguments makes the error of a wrong number of arguments one of usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
