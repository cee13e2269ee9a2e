package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/migrate"
)

// limits bound what doctor waits for.
type limits struct {
	check time.Duration // one check: a table that somebody has locked does not keep the others from being made
	// its transaction behind a pooler: where that has no other connection to lend, the application
	// waits for so long
	lend  time.Duration
	echo  time.Duration // a notification: as long as a client waits for its first
	write time.Duration // a writer of others
}

var usual = limits{check: 5 * time.Second, lend: time.Second, echo: 2 * time.Second, write: time.Second}

// level says how much a finding matters.
type level string

// The levels, the worst first.
const (
	isProblem level = "problem" // locks can fail, or be granted twice
	isUnknown level = "unknown" // it could not be looked at
	isNote    level = "note"    // locks work, and an operator should know this
	isOK      level = "ok"
)

var levels = []level{isProblem, isUnknown, isNote, isOK}

// finding is one thing that was looked at.
type finding struct {
	Level level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

func problem(found, do string) finding { return finding{Level: isProblem, Found: found, Do: do} }
func unknown(found, do string) finding { return finding{Level: isUnknown, Found: found, Do: do} }
func note(found, do string) finding    { return finding{Level: isNote, Found: found, Do: do} }
func fine(found string) finding        { return finding{Level: isOK, Found: found} }

// found is what a check returns that has one finding, and cannot fail any more.
func found(f finding) ([]finding, error) { return []finding{f}, nil }

// check looks at one thing. An error says why it could not.
type check struct {
	name string
	look func(ctx context.Context, e *examination) ([]finding, error)
}

// examination is a database, and what checks tell each other about it.
type examination struct {
	database
	limits
	older    time.Duration // a transaction that is open for longer is long
	standby  bool          // PostgreSQL replays what a primary writes
	failover failover      // to expect, once the cluster has been looked at
	tables   driver.Schema // the zero value: there are none that this build can use
	pooling  pooling       // what is in between, once that has been looked at
}

// own is how many connections of the server doctor has itself. Behind a pooler those that it used
// are there without it, too.
func (e *examination) own() int {
	if e.engine == migrate.Postgres && e.pooling != noPooler {
		return 0
	}
	return e.Stats().OpenConnections
}

// checksOf are the checks of an engine, in the order in which they are made.
func checksOf(engine string) []check {
	switch engine {
	case migrate.Postgres:
		return postgresChecks
	case migrate.MySQL:
		return mysqlChecks
	}
	return sqliteChecks
}

var findings = listing[finding]{
	header: table.Row{"level", "check", "finding"},
	row: func(f finding) table.Row {
		if f.Do == "" {
			return table.Row{f.Level, f.Check, f.Found}
		}
		return table.Row{f.Level, f.Check, f.Found + "; " + f.Do}
	},
}

// doctor examines a database.
func doctor(o *options) *cobra.Command {
	var all, strict bool
	var older time.Duration
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a database: what keeps locks from working, and what to do",
		Long: `doctor examines the database as dblock's clients see it, and prints a finding a line with what to do. It changes nothing.

  problem   locks can fail, or be granted twice
  unknown   it could not be looked at, for want of a privilege for instance
  note      locks work; you should know this
  ok        shown with --all

It connects as the data source says: give it the application's own user and parameters. What an application sets on its connections
besides, doctor cannot see. A check takes 5 s at most; what could not be looked at within --timeout is unknown.

The exit status is 1 if there is a problem, and 0 if there is none, whatever is unknown. With --strict it is 1 for a note as well: most
correct set-ups have one, a pooler for instance. In CI use it without.`,
		Example: "  dblock doctor           # in CI, too\n  dblock doctor --json    # for a script\n  dblock doctor " +
			"--all --older 1m",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := sourceOf(o, o.getenv)
			if err != nil {
				return err
			}
			made := o.examine(c.Context(), s, older)
			if err := c.Context().Err(); err != nil {
				return err
			}
			slices.SortStableFunc(made, func(a, b finding) int {
				return cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level))
			})
			if err := o.report(c, made, all); err != nil {
				return err
			}
			if count(made, isProblem) > 0 || strict && count(made, isNote) > 0 {
				return statusError{status: exitFailed}
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.BoolVar(&all, "all", false, "show what is ok, too")
	flags.BoolVar(&strict, "strict", false, "fail for a note, too")
	flags.DurationVar(&older, "older", 5*time.Minute, "report transactions that are open for longer")
	return c
}

// report prints the findings, and how many there are.
func (o *options) report(c *cobra.Command, made []finding, all bool) error {
	shown := slices.Clone(made)
	if !all {
		shown = slices.DeleteFunc(shown, func(f finding) bool { return f.Level == isOK })
	}
	if len(shown) > 0 {
		if _, _, err := findings.print(c.OutOrStdout(), o.json, each(shown), 0); err != nil {
			return err
		}
	}
	if o.json {
		return nil
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "problems: %d, unknown: %d, notes: %d, ok: %d\n",
		count(made, isProblem), count(made, isUnknown), count(made, isNote), count(made, isOK))
	return err
}

func count(made []finding, l level) (n int) {
	for _, f := range made {
		if f.Level == l {
			n++
		}
	}
	return n
}

// examine makes all checks of a database. One that cannot be reached is a single finding.
func (o *options) examine(ctx context.Context, s source, older time.Duration) []finding {
	ctx, cancel := o.context(ctx)
	defer cancel()
	s.local = false // a file that is missing is a finding, and is not made
	s.spread(firstSign)
	if s.postgres != nil {
		s.postgres.DefaultQueryExecMode = pgx.QueryExecModeExec // old poolers lose what was prepared
	}
	d, err := s.pool(false, o.stderr)
	if err == nil {
		defer d.Close()
		err = d.PingContext(ctx)
	}
	if err != nil {
		return []finding{{isProblem, "connection", fmt.Sprintf("%v cannot be reached: %v", s, because(ctx, err)),
			"see that the data source is right and the server is up"}}
	}
	e := &examination{database: d, limits: o.limits, older: older}
	if d.engine == migrate.SQLite {
		e.file = e.real(ctx)
	}
	made := []finding{{isOK, "connection", s.String(), ""}}
	for _, c := range checksOf(d.engine) {
		made = append(made, c.run(ctx, e)...)
	}
	return made
}

// run makes a check. What it could not look at is a finding as well.
func (c check) run(ctx context.Context, e *examination) []finding {
	ctx, cancel := context.WithTimeoutCause(ctx, e.check, fmt.Errorf("no answer within %v", e.check))
	defer cancel()
	made, err := c.look(ctx, e)
	if err != nil {
		made = append(made, unknown(fmt.Sprintf("this could not be looked at: %v", because(ctx, err)), ""))
	}
	for i := range made {
		made[i].Check = c.name
	}
	return made
}

// because is an error, or why its context ended: drivers do not say that. Its text has one line. Of
// pgx's it has what each address answered, without the rest of the data source.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if failed := new(pgconn.ConnectError); errors.As(err, &failed) {
		err = failed.Unwrap()
	}
	return errors.New(driver.Line(err.Error()))
}
