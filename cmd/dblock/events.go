package main

import (
	"context"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

var occurrences = listing[inspect.Event]{
	header: table.Row{"at", "what", "name", "token", "host", "thread", "why"},
	row: func(e inspect.Event) table.Row {
		return table.Row{clock(e.At), e.Kind, e.Name, e.Token, e.Host, e.Thread, e.Detail}
	},
	none: "Nothing is recorded. Clients write down grants and releases if they have dblock.WithEvents; ask and " +
		"break always do.",
}

// events lists the history.
func events(o *options) *cobra.Command {
	f := inspect.EventFilter{Newest: true}
	var since time.Duration
	var limit func() uint
	c := &cobra.Command{
		Use:   "events [NAME]",
		Short: "List the history, the latest event first",
		Args:  named(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.Name = args[0]
			}
			if since > 0 {
				f.Since = time.Now().Add(-since)
			}
			f.Limit = andOneMore(limit())
			return o.once(c, func(ctx context.Context, client *client) error {
				return occurrences.list(o, c, c.OutOrStdout(), inspect.New(client).Events(ctx, f), limit())
			})
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.Kinds, "kind", nil,
		"only these kinds: granted, released, ran, lost, expired, asked, broken, or an application's own")
	durationVar(flags, &since, "since", "", 0, "only the last so long")
	limit = limits(o, c, 50, "events")
	return c
}
