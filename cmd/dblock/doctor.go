package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// checkTimeout bounds one check, so that a locked table does not block the other checks.
const checkTimeout = 5 * time.Second

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
	Level level
	Check string
	Found string
	Do    string
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

// checks run in this order. The others need what the first one examines, and those that do what an
// application does need its rights.
var checks = []check{
	{"schema", schema},
	{"privileges", privileges},
	{"session", session},
	{"listening", listening},
	{"TTL", ttls},
	{"clock", clocks},
}

// examination is a database, as an engine of a client's works with it.
type examination struct {
	database
	backend driver.Backend
	looks   bool // the user may only look
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
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a database: what keeps locks from working, and what to do",
		Long: `doctor does what a client does before its first lock, and prints a finding a line with what to do. It takes no lock, and leaves nothing
behind: it opens a session, listens as a waiter does, and ends both.

  problem   locks can fail, or be granted twice
  unknown   the check could not be made
  note      locks work; you should know this
  ok        shown with --all

It connects as the data source says: give it the application's own user and parameters. doctor cannot see settings that an application
changes on its connections. A check takes 5 s at most; a check that could not be made within --timeout is unknown. Without tables that
this command can use, no other check is made.

The exit status is 1 if there is a problem, and 0 if there is none, whatever is unknown. With --strict it is 1 for a note as well, which
a pooler of transactions is. In CI use it without.`,
		Example: "  dblock doctor\n  dblock doctor --all",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := sourceOf(o, o.getenv)
			if err != nil {
				return err
			}
			made := o.examine(c.Context(), s)
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
func (o *options) examine(ctx context.Context, s source) []finding {
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
	e := &examination{database: d, backend: inside.Of(d.locks()).Backend}
	made := []finding{{isOK, "connection", s.String(), ""}}
	for i, c := range checks {
		made = append(made, c.run(ctx, e)...)
		if i == 0 && count(made, isProblem) > 0 {
			break
		}
	}
	return made
}

// run runs a check. A check that could not be made is a finding as well.
func (c check) run(ctx context.Context, e *examination) []finding {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %v", checkTimeout))
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
