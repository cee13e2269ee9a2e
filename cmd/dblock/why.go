package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

// link is a name in a chain of waiting, and the transactions that keep its rows locked.
type link struct {
	inspect.Info
	Transactions []obstacle
	Untold       string // the reason why the transactions are unknown
	// Snapshot keeps dblock's tables growing. Only the first name has it, and only if it is old.
	Snapshot *snapshot
}

// why follows the waiting from a name to its end.
func why(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "why NAME",
		Short: "Follow the waiting from a name to the holder or transaction at its end",
		Long: `why shows the holder of a name, the name that this holder waits for, its holder, and so on to the end: a holder that waits for no lock, one
whose session has expired, holders that wait for each other, or a transaction of the application that keeps a row of dblock's tables
locked, with the connection and the query that the server lists. On the host of a "dblock run" (Linux) it continues with the locks that
the command waits for.

To find such a transaction, why waits for the rows of each name as a release does, for a second at most, and unlocks them. That needs the
right to lock them, and to see other sessions: pg_read_all_stats on PostgreSQL, PROCESS on MySQL and MariaDB, on MySQL also SELECT
on performance_schema. On SQLite, Linux identifies the process.

On PostgreSQL why also names the oldest snapshot if that is open for five minutes, or if many transactions have begun since: while it is
open, dblock's tables grow.`,
		Args: named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := o.context(c.Context())
			defer cancel()
			return o.reading(ctx, func(d database) error {
				chain, err := d.why(ctx, args[0])
				if err != nil {
					return err
				}
				if o.json {
					for _, l := range chain {
						if err := writeJSON(c.OutOrStdout(), l); err != nil {
							return err
						}
					}
					return nil
				}
				_, err = io.WriteString(c.OutOrStdout(), explain(chain))
				return err
			})
		},
	}
}

// why returns the chain of a name. Not every database can list the transactions that keep rows
// locked: the link then says so.
func (d database) why(ctx context.Context, name string) (chain []link, err error) {
	err = d.locking(ctx, func(c *client) error {
		i := inspect.New(c)
		infos, err := i.Why(ctx, name)
		if err == nil {
			infos, err = follow(ctx, i, infos)
		}
		if err != nil {
			return err
		}
		server, err := d.server(ctx)
		if err != nil {
			return err
		}
		for _, info := range infos {
			l := link{Info: info}
			if l.Transactions, err = d.obstacles(ctx, probes[server], info.Name); err != nil {
				l.Untold = err.Error()
			}
			chain = append(chain, l)
		}
		// a hint, which is left out if it cannot be read
		if s, err := d.oldestSnapshot(ctx); err == nil && s != nil && s.old() {
			chain[0].Snapshot = s
		}
		return nil
	})
	return chain, err
}

// explain draws a chain as a tree: below a holder stand the names that it waits for.
func explain(chain []link) string {
	var b strings.Builder
	e := explanation{&b, chain, map[string]bool{}}
	e.name(chain[0], nil)
	if s := chain[0].Snapshot; s != nil {
		told := fmt.Sprintf("The oldest snapshot is that of %v. VACUUM keeps all newer row versions; dblock's tables "+
			"have %d dead ones; %s.", s, s.Versions, remedies[s.Kind])
		fmt.Fprintln(&b, printable(told))
	}
	return b.String()
}

type explanation struct {
	io.Writer
	chain []link
	told  map[string]bool // the names already described
}

const step = "  "

// name describes a name, which the last holder on the way waits for.
func (e explanation) name(l link, way []string) {
	margin := strings.Repeat(step, 2*len(way))
	line := func(format string, a ...any) { fmt.Fprintf(e, margin+"%s\n", printable(fmt.Sprintf(format, a...))) }
	switch {
	case slices.Contains(way, l.Name):
		line("%s: its holder waits for the one above: they wait for each other (deadlock)", l.Name)
		return
	case e.told[l.Name]:
		line("%s: as told above", l.Name)
		return
	}
	e.told[l.Name] = true
	line("%s%s", l.Name, queued(l.Queued))
	way = append(slices.Clip(way), l.Name)
	for _, t := range l.Transactions {
		line(step+"LOCKED by the transaction of %s", t)
	}
	switch {
	case l.Untold != "":
		line(step+"Whether a transaction has it locked is not known: %s", l.Untold)
	case len(l.Holders) > 0 || len(l.Transactions) > 0:
	case l.Rests > 0:
		line(step+"It is free, and rests for %s (MinHold).", span(l.Rests))
	case l.Queued > 0:
		line(step + "It is free: the first waiter takes it within a second.")
	default:
		line(step + "It is free.")
	}
	for _, h := range l.Holders {
		awaited := e.awaited(h)
		line(step+"held by %s, %s for %s, token %d; %s", holder(h), claim(h, l.Capacity), age(h.Since), h.Token,
			condition(h, len(awaited)))
		for _, next := range awaited {
			e.name(next, way)
		}
	}
}

// awaited returns the names that a holder waits for.
func (e explanation) awaited(h inspect.Participant) (names []link) {
	for _, l := range e.chain {
		if l.AwaitedBy(h) || awaitedByChild(l.Info, h) {
			names = append(names, l)
		}
	}
	return names
}

func queued(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", for which 1 waits"
	}
	return fmt.Sprintf(", for which %d wait", n)
}

func holder(p inspect.Participant) string {
	if p.App == "" {
		return process(p)
	}
	return process(p) + " (" + p.App + ")"
}

// condition describes what a holder does.
func condition(p inspect.Participant, awaits int) string {
	switch {
	case p.Buried != "":
		return p.Buried + ": the next waiter or the reaper takes the lock"
	case !p.Alive:
		return "it has expired: the next waiter or the reaper revokes the lock"
	case awaits > 0:
		return "it waits for"
	}
	return fmt.Sprintf("it waits for no lock, and ends in %s without a heartbeat", ends(p))
}

func (o obstacle) String() string {
	text := fmt.Sprintf("PID %d", o.PID)
	for _, part := range []string{o.User, o.From, o.State} {
		if part != "" {
			text += ", " + part
		}
	}
	if o.Age > 0 {
		text += " for " + span(o.Age)
	}
	if o.Query != "" {
		text += ": " + strings.Join(strings.Fields(o.Query), " ")
	}
	return text
}
