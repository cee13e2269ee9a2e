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

// limits bound the waits of doctor.
type limits struct {
	// check bounds one check, so that a locked table does not block the other checks.
	check time.Duration
	// lend bounds the transaction behind a pooler. If the pooler has no other connection to lend,
	// the application waits meanwhile.
	lend  time.Duration
	echo  time.Duration // a notification: the time for which a client waits for its first
	write time.Duration // another connection's write
}

var usual = limits{check: 5 * time.Second, lend: time.Second, echo: 2 * time.Second, write: time.Second}

// level says how much a finding matters.
type level string

// The levels, the worst first.
const (
	isProblem level = "problem" // locks can fail, or be granted twice
	isUnknown level = "unknown" // the check could not be made
	isNote    level = "note"    // locks work, and an operator should know this
	isOK      level = "ok"
)

var levels = []level{isProblem, isUnknown, isNote, isOK}

// finding is the result of a check.
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

// found returns the single finding of a check that cannot fail any more.
func found(f finding) ([]finding, error) { return []finding{f}, nil }

// check examines one thing. An error says why it could not.
type check struct {
	name string
	look func(ctx context.Context, e *examination) ([]finding, error)
}

// examination is a database, with results that later checks use.
type examination struct {
	database
	limits
	older    time.Duration // a longer transaction is reported as long
	standby  bool          // PostgreSQL replays what a primary writes
	failover failover      // the expected failover, set by the check of the cluster
	tables   driver.Schema // zero: there are no tables that this build can use
	pooling  pooling       // the pooler in between, set by its check
}

// own returns the number of doctor's own connections on the server. Behind a pooler, the pooler
// would hold them without doctor too.
func (e *examination) own() int {
	if e.engine == migrate.Postgres && e.pooling != noPooler {
		return 0
	}
	return e.Stats().OpenConnections
}

// checksOf returns the checks of an engine, in the order in which they run.
func checksOf(engine migrate.Engine) []check {
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
  unknown   the check could not be made, for want of a privilege for instance
  note      locks work; you should know this
  ok        shown with --all

It connects as the data source says: give it the application's own user and parameters. doctor cannot see settings that an application
changes on its connections. A check takes 5 s at most; a check that could not be made within --timeout is unknown.

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
	flags.BoolVar(&all, "all", false, "also show checks that are ok")
	flags.BoolVar(&strict, "strict", false, "fail for a note, too")
	flags.DurationVar(&older, "older", longOpen, "report transactions and snapshots that are open for longer")
	return c
}

// report prints the findings and their number.
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

// examine runs all checks of a database. A database that cannot be reached is a single finding.
func (o *options) examine(ctx context.Context, s source, older time.Duration) []finding {
	ctx, cancel := o.context(ctx)
	defer cancel()
	s.local = false // a missing file is a finding, and is not made
	s.spread(firstSign)
	if s.postgres != nil {
		s.postgres.DefaultQueryExecMode = pgx.QueryExecModeExec // old poolers lose prepared statements
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

// run runs a check. A check that could not be made is a finding as well.
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

// because returns err, or the cause of its context, which drivers leave out. Its text has one line.
// For a connect error of pgx it has the answer of each address, without the rest of the data
// source.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if failed := new(pgconn.ConnectError); errors.As(err, &failed) {
		err = failed.Unwrap()
	}
	return errors.New(driver.Line(err.Error()))
}
