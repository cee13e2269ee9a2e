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

// migrations has a command for each direction.
func migrations(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables, update them, show or remove them",
		Long: `migrate works on the tables of the client (set locks), and on request on those of package fence
(fences) and of package optimistic (versions): --set locks,fences. With --schema, the locks are made in that
place, and dump and sql name it. An application that runs goose itself has the tables among its own migrations
by dump, or by Copy of package migrate.`,
	}
	var names []string
	c.PersistentFlags().StringSliceVar(&names, "set", []string{"locks"}, "which tables: locks, fences, versions")
	with := func(f onSets) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, _ []string) error {
			chosen, err := chosenSets(names, o.schema)
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, d database) error { return f(ctx, c, d.DB, d.engine, chosen) })
		}
	}
	c.AddCommand(&cobra.Command{
		Use: "up", Short: "Make the tables, or update them", Args: cobra.NoArgs,
		PreRun: func(*cobra.Command, []string) { o.create = true },
		RunE: with(func(
			ctx context.Context, c *cobra.Command, db *sql.DB, engine migrate.Engine, sets []migrate.Set,
		) error {
			before, unread := migrate.Status(ctx, db, engine, sets...)
			if err := migrate.Up(ctx, db, engine, sets...); err != nil {
				return err
			}
			after, err := migrate.Status(ctx, db, engine, sets...)
			if unread != nil || err != nil { // a user without rights to the history, for whom Up had nothing to do
				after = before
			}
			after = slices.DeleteFunc(after, func(m migrate.Migration) bool { return slices.Contains(before, m) })
			_, _, err = versions.print(c.OutOrStdout(), o.json, each(migrated(after)), 0)
			return err
		}),
	}, &cobra.Command{
		Use: "status", Short: "Show which versions there are, and which are applied", Args: cobra.NoArgs,
		RunE: with(func(
			ctx context.Context, c *cobra.Command, db *sql.DB, engine migrate.Engine, sets []migrate.Set,
		) error {
			all, err := migrate.Status(ctx, db, engine, sets...)
			if err == nil {
				_, _, err = versions.print(c.OutOrStdout(), o.json, each(migrated(all)), 0)
			}
			return err
		}),
	}, down(with), dump(o, &names), plainSQL(o, &names))
	return c
}

// onSets is a command on the named sets of a database.
type onSets func(
	ctx context.Context, c *cobra.Command, db *sql.DB, engine migrate.Engine, sets []migrate.Set,
) error

func down(with func(onSets) func(c *cobra.Command, args []string) error) *cobra.Command {
	var sure bool
	c := &cobra.Command{
		Use: "down --yes", Short: "Remove the tables, and with them every lock that is held",
		Args: func(c *cobra.Command, args []string) error {
			if !sure {
				return errors.New("every held lock would be lost, and tokens would begin again: --yes to do it")
			}
			return cobra.NoArgs(c, args)
		},
		RunE: with(func(
			ctx context.Context, c *cobra.Command, db *sql.DB, engine migrate.Engine, sets []migrate.Set,
		) error {
			return migrate.Down(ctx, db, engine, sets...)
		}),
	}
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do it")
	return c
}

// dump writes the migrations as files.
func dump(o *options, names *[]string) *cobra.Command {
	var engine migrate.Engine
	c := &cobra.Command{
		Use: "dump FOLDER --engine ENGINE", Short: "Write the migrations behind those in a folder of goose",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			chosen, err := chosenFor(engine, *names, o.schema)
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
	c.Flags().StringVar((*string)(&engine), "engine", "", "postgres, mysql or sqlite")
	return c
}

// plainSQL prints the migrations for tools other than goose.
func plainSQL(o *options, names *[]string) *cobra.Command {
	var engine migrate.Engine
	var down bool
	c := &cobra.Command{
		Use:   "sql --engine ENGINE [--down]",
		Short: "Print plain SQL that makes the tables, for Atlas, golang-migrate or Flyway",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			chosen, err := chosenFor(engine, *names, o.schema)
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
	c.Flags().StringVar((*string)(&engine), "engine", "", "postgres, mysql or sqlite")
	c.Flags().BoolVar(&down, "down", false, "print the statements that remove them")
	return c
}

// chosenFor returns the named sets, for a named engine.
func chosenFor(engine migrate.Engine, names []string, schema string) ([]migrate.Set, error) {
	if !slices.Contains([]migrate.Engine{migrate.Postgres, migrate.MySQL, migrate.SQLite}, engine) {
		return nil, usageError{fmt.Errorf("--engine %q: want %s, %s (also for MariaDB) or %s", engine, migrate.Postgres,
			migrate.MySQL, migrate.SQLite)}
	}
	return chosenSets(names, schema)
}

// chosenSets returns the named sets. The locks come first: in a missing schema of PostgreSQL they
// make it.
func chosenSets(names []string, schema string) (chosen []migrate.Set, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(tables.Sets, func(set migrate.Set) bool { return set.String() == name }) {
			return nil, usageError{fmt.Errorf("--set %q: want one of %v", name, tables.Sets)}
		}
	}
	for _, set := range tables.Sets {
		switch named := slices.Contains(names, set.String()); {
		case named && set == migrate.Locks:
			chosen = append(chosen, set.In(schema))
		case named:
			chosen = append(chosen, set)
		}
	}
	return chosen, nil
}

// migration is a version of a set of tables, as this command shows it.
type migration struct {
	Tables  string
	Version int64
	Applied bool
	File    string
}

func migrated(all []migrate.Migration) []migration {
	list := make([]migration, len(all))
	for i, m := range all {
		list[i] = migration{m.Set.String(), m.Version, m.Applied, m.File}
	}
	return list
}

var versions = listing[migration]{
	header: table.Row{"tables", "version", "applied", "file"},
	row: func(m migration) table.Row {
		applied := "no"
		if m.Applied {
			applied = "yes"
		}
		return table.Row{m.Tables, m.Version, applied, m.File}
	},
	none: "The tables are current: nothing was done.", // by up
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
