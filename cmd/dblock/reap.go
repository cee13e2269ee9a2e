package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/reaper"
)

// reap clears up once.
func reap(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "reap",
		Short: "Clear up after dead clients, once",
		Long: `reap does once what each client does all the time: it ends the sessions of clients that died, hands their locks on, and deletes what is
older than the history is kept for. It is for databases whose clients all run WithoutReaper.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.with(c, func(ctx context.Context, d database) error {
				report, err := reaper.Sweep(ctx, d.locks())
				if err != nil {
					return err
				}
				if o.json {
					return writeJSON(c.OutOrStdout(), report)
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), report)
				return err
			})
		},
	}
}
