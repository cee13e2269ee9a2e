package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/migrate"
	tables "github.com/dblock-go/dblock/migrations"
)

// sets are all sets of tables.
var sets = []migrate.Set{migrate.Locks, migrate.Fences, migrate.Versions}

// migrations has a command for each direction.
func migrations(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables, update them, show or remove them",
		Long: `migrate works on the tables of the client (set locks), and on request on those of package fence (fences) and of package
optimistic (versions): --set locks,fences. Applications that run goose themselves have their own ways: see package migrate.`,
	}
	var names []string
	c.PersistentFlags().StringSliceVar(&names, "set", []string{"locks"}, "which tables: locks, fences, versions")
	with := func(f func(ctx context.Context, c *cobra.Command, db *sql.DB, engine string,
		sets []migrate.Set) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, _ []string) error {
			chosen, err := chosenSets(names)
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, d database) error { return f(ctx, c, d.DB, d.engine, chosen) })
		}
	}
	c.AddCommand(&cobra.Command{
		Use: "up", Short: "Make the tables, or update them", Args: arguments(cobra.NoArgs),
		PreRun: func(*cobra.Command, []string) { o.create = true },
		RunE: with(func(ctx context.Context, c *cobra.Command, db *sql.DB, engine string, sets []migrate.Set) error {
			// It makes the schema, too.
			if o.schema != "" && engine == migrate.Postgres && slices.Contains(sets, migrate.Locks) {
				if err := migrate.In(o.schema).Up(ctx, db, engine); err != nil {
					return err
				}
			}
			return migrate.Up(ctx, db, engine, sets...)
		}),
	}, &cobra.Command{
		Use: "status", Short: "Show which versions there are, and which are applied", Args: arguments(cobra.NoArgs),
		RunE: with(func(ctx context.Context, c *cobra.Command, db *sql.DB, engine string, sets []migrate.Set) error {
			all, err := migrate.Status(ctx, db, engine, sets...)
			if err == nil {
				_, _, err = versions.print(c.OutOrStdout(), o.json, each(all), 0)
			}
			return err
		}),
	}, down(with), dump(&names), plainSQL(&names))
	return c
}

// withSets makes a command's RunE of a function that needs the database and its sets of migrations.
type withSets func(
	run func(ctx context.Context, c *cobra.Command, db *sql.DB, engine string, sets []migrate.Set) error,
) func(c *cobra.Command, args []string) error

func down(with withSets) *cobra.Command {
	var sure bool
	c := &cobra.Command{
		Use: "down --yes", Short: "Remove the tables, and with them every lock that is held",
		Args: arguments(cobra.NoArgs),
		RunE: with(func(ctx context.Context, c *cobra.Command, db *sql.DB, engine string, sets []migrate.Set) error {
			if !sure {
				return usageError{errors.New("every held lock would be lost, and tokens would begin again: " +
					"--yes to do it")}
			}
			return migrate.Down(ctx, db, engine, sets...)
		}),
	}
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do it")
	return c
}

// dump writes the migrations as files.
func dump(names *[]string) *cobra.Command {
	var engine string
	c := &cobra.Command{
		Use: "dump FOLDER --engine ENGINE", Short: "Write the migrations as files for goose",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			chosen, err := chosenFor(engine, *names)
			if err != nil {
				return err
			}
			files, err := migrate.Copy(args[0], engine, time.Now(), chosen...)
			for _, file := range files {
				_, _ = fmt.Fprintln(c.OutOrStdout(), file)
			}
			return err
		},
	}
	c.Flags().StringVar(&engine, "engine", "", "postgres, mysql or sqlite")
	return c
}

// plainSQL prints the migrations for tools other than goose.
func plainSQL(names *[]string) *cobra.Command {
	var engine string
	var down bool
	c := &cobra.Command{
		Use:   "sql --engine ENGINE [--down]",
		Short: "Print plain SQL that makes the tables, for Atlas, golang-migrate or Flyway",
		Args:  arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			chosen, err := chosenFor(engine, *names)
			if err != nil {
				return err
			}
			text, err := tables.SQL(engine, down, chosen...)
			if err == nil {
				_, err = io.WriteString(c.OutOrStdout(), text)
			}
			return err
		},
	}
	c.Flags().StringVar(&engine, "engine", "", "postgres, mysql or sqlite")
	c.Flags().BoolVar(&down, "down", false, "print the statements that remove them")
	return c
}

// chosenFor returns the named sets, for a named engine.
func chosenFor(engine string, names []string) ([]migrate.Set, error) {
	if !slices.Contains([]string{migrate.Postgres, migrate.MySQL, migrate.SQLite}, engine) {
		return nil, usageError{fmt.Errorf("--engine %q: want %s, %s (also for MariaDB) or %s", engine, migrate.Postgres,
			migrate.MySQL, migrate.SQLite)}
	}
	return chosenSets(names)
}

func chosenSets(names []string) (chosen []migrate.Set, err error) {
	for _, name := range names {
		set := migrate.Set(name)
		if !slices.Contains(sets, set) {
			return nil, usageError{fmt.Errorf("--set %q: want one of %v", name, sets)}
		}
		chosen = append(chosen, set)
	}
	return chosen, nil
}

var versions = listing[migrate.Migration]{
	header: table.Row{"tables", "version", "applied", "file"},
	row: func(m migrate.Migration) table.Row {
		applied := "no"
		if m.Applied {
			applied = "yes"
		}
		return table.Row{m.Set, m.Version, applied, m.File}
	},
}

// each turns a list into the sequence that listings print.
func each[T any](list []T) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}
