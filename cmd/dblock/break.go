package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

// revoke is the command break, which takes a lock from a holder that was seen.
func revoke(o *options) *cobra.Command {
	var tokens []int64
	var reason string
	var yes bool
	c := &cobra.Command{
		Use:     "break NAME --token TOKEN --reason TEXT",
		Aliases: []string{"unlock"},
		Short:   "Revoke a lock from its holder, which is notified",
		Long: `break revokes a name from the holders with these tokens, which ls and show print, and from no other: a later
holder keeps it. The next waiter gets the lock at once. The holder is notified, and its context ends; until it has
noticed, it may still act on the protected resource: see that it is fenced (Guard, package fence), or stop it first.`,
		Example: "  dblock break orders/42 --token 1795420000000000 --reason 'host is gone, ticket 123'",
		Args:    named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(tokens) == 0:
				return usageError{errors.New("no --token: dblock show NAME says which the holder has")}
			case strings.TrimSpace(reason) == "":
				return usageError{errors.New("no --reason: it is written into the history, and the holder is told")}
			}
			if err := rehearse(func(ctx context.Context, c *client) error {
				_, err := c.Break(ctx, args[0], reason, tokens...)
				return err
			}); err != nil {
				return usageError{err}
			}
			return o.inspect(c.Context(), func(ctx context.Context, client *client) error {
				return o.breaks(ctx, c, client, args[0], reason, tokens, yes)
			})
		},
	}
	flags := c.Flags()
	flags.Int64SliceVar(&tokens, "token", nil, "of the holder; of several that share the name, each that is to lose it")
	flags.StringVar(&reason, "reason", "", "why")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// broken is what break has done, as --json shows it.
type broken struct {
	Name  string
	Taken int // from so many holders
	Of    int // so many there were
}

// breaks shows the affected holders, asks, and revokes. Only the question has no time limit.
func (o *options) breaks(
	ctx context.Context, c *cobra.Command, client *client, name, reason string, tokens []int64, yes bool,
) error {
	limited, cancel := o.context(ctx)
	defer cancel()
	info, err := inspect.New(client).Lock(limited, name)
	if err != nil {
		return err
	}
	meant := slices.DeleteFunc(slices.Clone(info.Holders),
		func(p inspect.Participant) bool { return !slices.Contains(tokens, p.Token) })
	if len(meant) == 0 {
		return notHeld(info, tokens)
	}
	if !yes {
		c.PrintErrf("%s\n%s\n%d wait for it. Take it away? [y/N] ", printable(info.Name),
			holders(info.Capacity).table(meant), info.Queued)
		answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("nothing was done")
		}
	}
	limited, cancel = o.context(ctx)
	defer cancel()
	n, err := client.Break(limited, name, reason, tokens...)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%q was released meanwhile: nothing was done", name)
	}
	if o.json {
		return writeJSON(c.OutOrStdout(), broken{info.Name, n, len(info.Holders)})
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "Taken from %d of %d holders.\n", n, len(info.Holders))
	return err
}

func notHeld(is inspect.Info, tokens []int64) error {
	if len(is.Holders) == 0 {
		return fmt.Errorf("%q is not held: nothing was done", is.Name)
	}
	have := make([]int64, len(is.Holders))
	for i, p := range is.Holders {
		have[i] = p.Token
	}
	return fmt.Errorf("%q is not held with token %s: held with %s; nothing was done", is.Name, list(tokens), list(have))
}

// list joins tokens by commas.
func list(tokens []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(tokens), " ", ", "), "[]")
}

// ask asks a holder to release a lock.
func ask(o *options) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "ask NAME --reason TEXT",
		Short: "Ask the holder of a lock to release it",
		Long: `ask asks the holders of a name to release it. It revokes nothing: an application gets the request in
Lock.Asked, and releases the lock when it can.`,
		Args: named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return usageError{errors.New("no --reason: the holder is told")}
			}
			if err := rehearse(func(ctx context.Context, c *client) error {
				return c.Ask(ctx, args[0], reason)
			}); err != nil {
				return usageError{err}
			}
			return o.once(c, func(ctx context.Context, client *client) error {
				return client.Ask(ctx, args[0], reason)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}
