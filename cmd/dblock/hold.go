package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock"
)

const holdHelp = `hold takes a lock that stays held after hold has ended: for the time of --for, unless "dblock renew"
changes it or "dblock release" releases the lock earlier. It prints the lock's token, by which these commands identify
the lock. The token is higher than all earlier tokens of the name, so that the protected resource can refuse an older
one. If the token cannot be written, hold releases the lock and fails. If the lock is not free (--no-wait), or not in
time (--wait), hold ends with status 75.

No heartbeat renews the lock: when its time has passed, the next client gets it, whatever its holder does then.`

var errLasts = usageError{errors.New("--for TIME: want at least 1s, such as --for 30m")}

// keep is the command hold, which takes a lock that outlives this process.
func keep(o *options) *cobra.Command {
	var lasts, wait time.Duration
	var noWait bool
	c := &cobra.Command{
		Use:   "hold NAME --for TIME",
		Short: "Take a lock for a time, and print its token",
		Long:  holdHelp,
		Example: `  token=$(dblock hold deploy --for 30m --no-wait) || exit
  ./step-one "$token" && dblock renew deploy "$token" --for 30m && ./step-two "$token"
  dblock release deploy "$token"`,
		Args: named(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case lasts < time.Second:
				return errLasts
			case noWait && wait != 0:
				return usageError{errors.New("--no-wait and --wait: give one of them")}
			}
			return o.detach(c.Context(), lasts, func(ctx context.Context, client *dblock.Client[*sql.Tx]) (*dblock.Lock,
				error) {
				take := client.Lock
				if noWait {
					take = client.TryLock
				}
				if wait > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, wait, errWait)
					defer cancel()
				}
				l, err := take(ctx, args[0])
				return l, notFree(ctx, err, exitNotFree)
			}, func(ctx context.Context, client *dblock.Client[*sql.Tx], l lease) (err error) {
				signal.Ignore(syscall.SIGPIPE) // which would end the process before it has released the lock
				if o.json {
					err = writeJSON(c.OutOrStdout(), l)
				} else {
					_, err = fmt.Fprintln(c.OutOrStdout(), l.Token)
				}
				if err == nil {
					return nil
				}
				err = fmt.Errorf("the token cannot be written, so that the lock is given up: %w", err)
				return errors.Join(err, giveUp(ctx, client, "hold", l.Name, l.Token))
			})
		},
	}
	f := c.Flags()
	durationVar(f, &lasts, "for", "", 0, "how long the lock lasts")
	f.BoolVarP(&noWait, "no-wait", "n", false, "do not wait for the lock")
	durationVar(f, &wait, "wait", "w", 0, "wait for the lock no longer than this; 0: for ever")
	return c
}

// lease is a lock of hold, as --json shows it.
type lease struct {
	Name  string
	Token int64
	Until time.Time // by this machine's clock
}

// renew sets another end for a lock of hold.
func renew(o *options) *cobra.Command {
	var lasts time.Duration
	c := &cobra.Command{
		Use: "renew NAME TOKEN --for TIME", Short: "Give a lock of hold another time, from now on",
		Args: named(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			token, err := tokenOf(args[1])
			if err != nil {
				return err
			}
			if lasts < time.Second {
				return errLasts
			}
			ctx, cancel := o.context(c.Context())
			defer cancel()
			return o.detach(ctx, lasts, func(ctx context.Context, client *dblock.Client[*sql.Tx]) (*dblock.Lock,
				error) {
				return resume(ctx, client, "renew", args[0], token)
			}, func(_ context.Context, _ *dblock.Client[*sql.Tx], l lease) error {
				if o.json {
					return writeJSON(c.OutOrStdout(), l)
				}
				return nil
			})
		},
	}
	durationVar(c.Flags(), &lasts, "for", "", 0, "how long the lock lasts from now on")
	return c
}

// release releases a lock of hold.
func release(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "release NAME TOKEN", Short: "Release a lock of hold", Args: named(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			token, err := tokenOf(args[1])
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, d database) error {
				return d.locking(ctx, func(client *dblock.Client[*sql.Tx]) error {
					return giveUp(ctx, client, "release", args[0], token)
				})
			})
		},
	}
}

// resume takes over a lock of hold. An error names the command.
func resume(
	ctx context.Context, client *dblock.Client[*sql.Tx], command, name string, token int64,
) (*dblock.Lock, error) {
	l, err := client.Resume(ctx, name, token)
	if e, ok := errors.AsType[*dblock.LockError](err); ok {
		return nil, &dblock.LockError{Op: command, Name: name, Err: e.Err}
	}
	return l, err
}

// giveUp releases a lock of hold.
func giveUp(ctx context.Context, client *dblock.Client[*sql.Tx], command, name string, token int64) error {
	l, err := resume(ctx, client, command, name, token)
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

func tokenOf(text string) (int64, error) {
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token <= 0 {
		return 0, usageError{fmt.Errorf("%q is no token", text)}
	}
	return token, nil
}

// detach takes a lock, detaches it and calls done.
func (o *options) detach(
	ctx context.Context, lasts time.Duration, take func(context.Context, *dblock.Client[*sql.Tx]) (*dblock.Lock, error),
	done func(context.Context, *dblock.Client[*sql.Tx], lease) error,
) error {
	return o.using(ctx, func(d database) error {
		return d.locking(ctx, func(client *dblock.Client[*sql.Tx]) error {
			l, err := take(ctx, client)
			if err != nil {
				return err
			}
			until := time.Now().Add(lasts) // or a moment later
			if err := l.Detach(ctx, lasts); err != nil {
				return err
			}
			return done(ctx, client, lease{l.Name(), l.Token(), until})
		})
	})
}
