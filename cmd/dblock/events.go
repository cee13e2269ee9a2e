package main

import (
	"context"
	"errors"
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
	none: "Nothing is recorded. Clients with dblock.WithEvents write down grants and releases; ask and unlock " +
		"always do.",
}

// events lists the history.
func events(o *options) *cobra.Command {
	f := inspect.EventFilter{Newest: true}
	var since time.Duration
	c := &cobra.Command{
		Use:   "events [NAME]",
		Short: "List the history, the latest event first",
		Args:  arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if since < 0 {
				return usageError{errors.New("--since: want 0 or more")}
			}
			if len(args) > 0 {
				f.Name = args[0]
			}
			if since > 0 {
				f.Since = time.Now().Add(-since)
			}
			return o.once(c, func(ctx context.Context, client *client) error {
				_, _, err := occurrences.print(c.OutOrStdout(), o.json, inspect.New(client).Events(ctx, f), 0)
				return err
			})
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.Kinds, "kind", nil,
		"only these kinds: granted, released, lost, expired, asked, broken, or an application's own")
	flags.DurationVar(&since, "since", 0, "only the last so long")
	flags.UintVar(&f.Limit, "limit", 50, "at most so many; 0: all")
	return c
}
