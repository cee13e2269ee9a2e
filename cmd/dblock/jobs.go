package main

import (
	"context"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/jobs"
)

var latest = listing[jobs.Run]{
	header: table.Row{"job", "last run", "took", "result", "host", "tries"},
	row: func(r jobs.Run) table.Row {
		return table.Row{r.Name, clock(r.Began), took(r), result(r), r.Host, r.Tries}
	},
	none: "No job has run.",
}

var history = listing[jobs.Run]{
	header: table.Row{"slot", "began", "took", "result", "host", "thread", "tries", "token"},
	row: func(r jobs.Run) table.Row {
		return table.Row{clock(r.SlotBegins), clock(r.Began), took(r), result(r), r.Host, r.Thread, r.Tries, r.Token}
	},
	none: "The job has not run, or so long ago that the reaper has deleted it.",
}

// took returns the duration of a run so far.
func took(r jobs.Run) string {
	if r.Ended.IsZero() {
		return span(time.Since(r.Began))
	}
	return span(r.Ended.Sub(r.Began))
}

func result(r jobs.Run) string {
	switch {
	case r.Err != "":
		line, _, _ := strings.Cut(r.Err, "\n") // a panic's stack follows; --json shows it
		return "failed: " + line
	case r.Ended.IsZero():
		return "runs, or its process died"
	}
	return "ok"
}

// listJobs lists the jobs that run once per slot.
func listJobs(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs that run once for all hosts, with the latest run of each",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.once(c, func(ctx context.Context, client *client) error {
				_, _, err := latest.print(c.OutOrStdout(), o.json, jobs.New(client).Jobs(ctx), 0)
				return err
			})
		},
	}
}

// runs lists the runs of a job.
func runs(o *options) *cobra.Command {
	var limit func() uint
	c := &cobra.Command{
		Use:   "runs JOB",
		Short: "List the runs of a job, the latest first",
		Args:  named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return o.once(c, func(ctx context.Context, client *client) error {
				return history.list(o, c, c.OutOrStdout(), jobs.New(client).Runs(ctx, args[0]), limit())
			})
		},
	}
	limit = limits(o, c, 20, "runs")
	return c
}
