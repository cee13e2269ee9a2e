package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dblock-go/dblock/inspect"
)

var locks = listing[inspect.Info]{
	header: table.Row{"name", "holder", "app", "kind", "held for", "ends in", "waiters", "token"},
	row: func(i inspect.Info) table.Row {
		if len(i.Holders) == 0 {
			return table.Row{i.Name, "", "", "free", "", "", i.Queued, i.Token}
		}
		p := i.Holders[0]
		who := process(p)
		if n := len(i.Holders) - 1; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		return table.Row{i.Name, who, p.App, claim(p, i.Capacity), age(p.Since), ends(p), i.Queued, p.Token}
	},
	none:  "No lock is held, and none has waiters.",
	after: func(i inspect.Info) string { return fmt.Sprintf("--after %q", i.Name) },
}

// ls lists names.
func ls(o *options) *cobra.Command {
	var f inspect.Filter
	var limit func() uint
	var every time.Duration
	var ofDatabase bool
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the names that are held or waited for",
		Example: "  dblock ls orders/ --contended\n  dblock ls --native orders/42\n  dblock ls --older 10m --json\n " +
			" dblock ls --watch",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.Prefix = args[0]
			}
			if ofDatabase {
				for _, other := range []string{"all", "after", "contended", "host", "older"} {
					if c.Flags().Changed(other) {
						return usageError{fmt.Errorf("--native and --%s: give one of them", other)}
					}
				}
				return o.listNative(c, f.Prefix, every, limit())
			}
			f.Limit = andOneMore(limit())
			return o.inspect(c.Context(), func(ctx context.Context, client *client) error {
				return o.repeat(ctx, c.OutOrStdout(), every, func(ctx context.Context, w io.Writer) error {
					return locks.list(o, c, w, inspect.New(client).List(ctx, f), limit())
				})
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Host, "host", "", "only names with a holder on this host")
	durationVar(flags, &f.Older, "older", "", 0, "only names that are held for at least this long")
	flags.BoolVar(&f.Contended, "contended", false, "only names with waiters that are no candidates of an election")
	flags.BoolVar(&f.Idle, "all", false, "also free names, until clients or reap remove them")
	flags.StringVar(&f.After, "after", "", "only names above this one: the last of a page, to go on behind it")
	limit = limits(o, c, 100, "names")
	flags.BoolVar(&ofDatabase, "native", false,
		"instead of dblock's tables, the database's own locks (postgres.Advisory, mysql.Named): all, or of the name "+
			"that stands for PREFIX")
	watches(c, &every)
	return c
}

func (o *options) listNative(c *cobra.Command, name string, every time.Duration, limit uint) error {
	return o.looking(c.Context(), func(d database) error {
		return o.repeat(c.Context(), c.OutOrStdout(), every, func(ctx context.Context, w io.Writer) error {
			return natives.list(o, c, w, d.natives(ctx, name), limit)
		})
	})
}

// andOneMore returns the number of rows to read in order to print rows, and to tell whether there
// are more.
func andOneMore(rows uint) uint {
	if rows == 0 {
		return 0
	}
	return rows + 1
}

// watches adds --watch.
func watches(c *cobra.Command, every *time.Duration) {
	durationVar(c.Flags(), every, "watch", "w", 0, "show it again at this interval, until ^C")
	c.Flags().Lookup("watch").NoOptDefVal = "2s"
}

// repeat calls look once, or repeatedly for a watch: on a terminal each time from the top of the
// screen. Each look of a watch must be answered in full within the time for a first answer. If the
// first look fails, the command ends. A later failure is printed as a line, and the watch
// continues.
func (o *options) repeat(
	ctx context.Context, w io.Writer, every time.Duration, look func(ctx context.Context, w io.Writer) error,
) error {
	if every <= 0 {
		limited, cancel := o.context(ctx)
		defer cancel()
		return look(limited, w)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		var screen bytes.Buffer
		limited, cancel := o.withinFirstSign(ctx)
		err := look(limited, &screen)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			screen.Reset()
		}
		if err := redraw(w, screen.Bytes()); err != nil {
			return err
		}
		if err != nil {
			complain(o.stderr, fmt.Errorf("%w; a failover may be in progress: the watch continues",
				because(limited, advised(err))))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// redraw writes a screen at once, over the previous one: written whole, it does not flicker.
func redraw(w io.Writer, text []byte) error {
	if file, is := w.(interface{ Fd() uintptr }); is && term.IsTerminal(int(file.Fd())) {
		const home, toEndOfLine, toEndOfScreen = "\x1b[H", "\x1b[K", "\x1b[J"
		text = slices.Concat([]byte(home), bytes.ReplaceAll(text, []byte("\n"), []byte(toEndOfLine+"\n")),
			[]byte(toEndOfScreen))
	}
	_, err := w.Write(text)
	return err
}
