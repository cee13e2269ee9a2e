package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

// show describes one name in full.
func show(o *options) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the holders of a name, and its whole queue",
		Args:  named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return o.inspect(c.Context(), func(ctx context.Context, client *client) error {
				return o.repeat(ctx, c.OutOrStdout(), every, func(ctx context.Context, w io.Writer) error {
					info, err := inspect.New(client).Lock(ctx, args[0])
					if err != nil {
						return err
					}
					if o.json {
						return writeJSON(w, info)
					}
					return describe(w, info)
				})
			})
		},
	}
	watches(c, &every)
	return c
}

// describe writes a name's state for a person.
func describe(w io.Writer, i inspect.Info) error {
	var b strings.Builder
	fmt.Fprintln(&b, printable(i.Name))
	switch {
	case len(i.Holders) == 0 && i.Rests > 0:
		fmt.Fprintf(&b, "It is free, and rests for %s (MinHold).\n", span(i.Rests))
	case len(i.Holders) == 0:
		fmt.Fprintln(&b, "It is free.")
	default:
		fmt.Fprintln(&b, holders(i.Capacity).table(i.Holders))
		for _, p := range i.Holders {
			if p.Asked != "" {
				fmt.Fprintf(&b, "%d was asked to release it: %s\n", p.Token, printable(p.Asked))
			}
			if len(p.Metadata) > 0 {
				fmt.Fprintf(&b, "%d: %s\n", p.Token, printable(pairs(p.Metadata)))
			}
		}
	}
	if len(i.Waiters) > 0 {
		fmt.Fprintf(&b, "\nWaiters, in this order: %d\n%s\n", i.Queued, waiters(i.Capacity).table(i.Waiters))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// holders and waiters are the tables of a name's participants; of is the number of its permits.
func holders(of int) listing[inspect.Participant] {
	return listing[inspect.Participant]{
		header: table.Row{"token", "holder", "app", "kind", "held for", "ends in", "session"},
		row: func(p inspect.Participant) table.Row {
			return table.Row{p.Token, process(p), p.App, claim(p, of), age(p.Since), ends(p), p.Session}
		},
	}
}

func waiters(of int) listing[inspect.Participant] {
	place := 0
	return listing[inspect.Participant]{
		header: table.Row{"place", "waiter", "app", "wants", "waits for", "ends in", "session"},
		row: func(p inspect.Participant) table.Row {
			place++
			return table.Row{place, process(p), p.App, claim(p, of), age(p.Since), ends(p), p.Session}
		},
	}
}

// pairs lists a map in the order of its keys.
func pairs(m map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return strings.Join(list, " ")
}
