package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

var clients = listing[inspect.Session]{
	header: table.Row{"session", "host", "pid", "app", "up for", "ends in", "holds", "waits"},
	row: func(s inspect.Session) table.Row {
		return table.Row{s.ID, s.Host, s.PID, s.App, age(s.Started),
			ends(inspect.Participant{Alive: s.Alive, Until: s.Until, Buried: s.Buried}), s.Held, s.Waiting}
	},
	none: "No client has a session.",
}

// sessions lists clients.
func sessions(o *options) *cobra.Command {
	var f inspect.SessionFilter
	var limit func() uint
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List the clients, and how many locks each holds",
		Long: `sessions lists the clients that have taken a lock since they started. The locks of a client end with its session: when no heartbeat of
it has come for its TTL ("ends in"), or at once when its process has ended ("crashed") and another one runs on its host.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.Limit = andOneMore(limit())
			return o.once(c, func(ctx context.Context, client *client) error {
				return clients.list(o, c, c.OutOrStdout(), inspect.New(client).Sessions(ctx, f), limit())
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Host, "host", "", "only clients of this host")
	flags.StringVar(&f.App, "app", "", "only clients of this application")
	flags.BoolVar(&f.Dead, "dead", false, "also those that have ended, for as long as the reaper leaves them")
	limit = limits(o, c, 100, "clients")
	return c
}
