package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/sqlite"
)

// errUsage matches every usageError.
var errUsage = errors.New("wrong arguments")

// usageError is the error of an invalid command line.
type usageError struct{ error }

func (e usageError) Unwrap() []error { return []error{errUsage, e.error} }

// flagsOf replaces the library's names of options by the flags of this command.
var flagsOf = strings.NewReplacer(
	"invalid option: TTL ", "--ttl ", "invalid option: Lease ", "--lease ", "invalid option: MinHold", "--min-hold",
	"invalid option: Owner's", "--owner:", "invalid option: Metadata", "--metadata", "not with Shared",
	"not with --shared", "invalid option: an interval of ", "--once-per ",
)

// strict makes each error in the arguments of a command, and of those below it, a usageError. A
// command that only has others below it needs one of them: a script whose variable is empty must
// not succeed.
func strict(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.ArbitraryArgs // run checks its own
	}
	switch {
	case c.HasSubCommands():
		check = noCommand
		c.RunE = func(c *cobra.Command, _ []string) error {
			c.SetOut(c.ErrOrStderr())
			return errors.Join(c.Help(), statusError{status: exitUsage})
		}
	case c.Name() == "help":
		check = func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			return noCommand(about, rest)
		}
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{fmt.Errorf("%w (%s)", err, c.UseLine())}
		}
		return nil
	}
	for _, below := range c.Commands() {
		strict(below)
	}
}

// noCommand refuses a word that is no command below c.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%q has no command %q", c.CommandPath(), args[0])
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		text += ": do you mean " + strings.Join(like, " or ") + "?"
	}
	return errors.New(text)
}

// named checks the number of arguments, and the first of them, a name.
func named(number cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := number(c, args); err != nil || len(args) == 0 {
			return err
		}
		return checkName(args[0])
	}
}

func checkName(name string) error {
	if err := contract.CheckText(name); err != nil {
		return fmt.Errorf("name %q %w", name, err)
	}
	return nil
}

// rehearse makes a call with a client that is closed and has no database: the library checks what
// it is given before it looks at that.
func rehearse(call func(ctx context.Context, c *client) error, o ...dblock.Option) error {
	nowhere, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return err
	}
	defer nowhere.Close()
	c, err := dblock.New(sqlite.New(nowhere), append(o, dblock.WithoutReaper())...)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := c.Close(ctx); err != nil {
		return err
	}
	if err := call(ctx, c); !errors.Is(err, dblock.ErrClosed) {
		return err
	}
	return nil
}

// invalidFlag leaves the names of Go's functions out of an error.
func invalidFlag(_ *cobra.Command, err error) error {
	invalid, number := new(pflag.InvalidValueError), new(strconv.NumError)
	if errors.As(err, &invalid) && errors.As(err, &number) {
		err = fmt.Errorf("invalid argument %q for \"--%s\" flag: %w", number.Num, invalid.GetFlag().Name, number.Err)
	}
	return usageError{err}
}

// duration is a flag of 0 or more.
type duration time.Duration

// durationVar defines a flag that is a duration.
func durationVar(f *pflag.FlagSet, d *time.Duration, name, short string, standard time.Duration, usage string) {
	*d = standard
	f.VarP((*duration)(d), name, short, usage)
	if standard == 0 {
		f.Lookup(name).DefValue = "" // help shows no default
	}
}

func (d *duration) String() string { return time.Duration(*d).String() }
func (*duration) Type() string     { return "duration" }

func (d *duration) Set(text string) error {
	given, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return errors.New("want a duration, such as 90s, 10m or 1h30m")
	case given < 0:
		return errors.New("want 0 or more")
	}
	*d = duration(given)
	return nil
}
