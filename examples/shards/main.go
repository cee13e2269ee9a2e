// Command shards keeps locks in several databases: each name in one of them, chosen by a hash. Two
// servers share three databases, with a client for each. The program shows how names spread, that
// the servers exclude each other, which names move to a fourth database, and what works within one
// database only.
//
//	go run ./examples/shards                                            on SQLite files of its own
//	go run ./examples/shards -dsn postgres://…/a,postgres://…/b         on PostgreSQL
//	go run ./examples/shards -dsn mysql://…/a,mysql://…/b               on MySQL or MariaDB
//
// shards.go shows the use of dblock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

// customers is how many groups of names there are.
const customers = 1000

func main() {
	dsns := flag.String("dsn", ",,", "`databases`, separated by commas: each as postgres://user:pass@host:port/db or "+
		"mysql://user:pass@host:port/db, or nothing for an SQLite file of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*dsns, ","), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsns []string, out io.Writer) (err error) {
	var servers [2]shards // each of them is a process in production
	for i, dsn := range dsns {
		db, err := database.Open(ctx, dsn, fmt.Sprintf("shards-%d", i))
		if err != nil {
			return err
		}
		defer db.Close()
		if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
			return err
		}
		fmt.Fprintf(out, "Database %d: %s.\n", i, db.Place)
		for n := range servers {
			client, err := dblock.New(db.EngineOverSQL())
			if err != nil {
				return err
			}
			defer client.Close(context.WithoutCancel(ctx))
			servers[n] = append(servers[n], client)
		}
	}
	first, second := servers[0], servers[1]
	spread(first, out)
	if err := exclude(ctx, first, second, out); err != nil {
		return err
	}
	if err := together(ctx, first, out); err != nil {
		return err
	}
	return lead(ctx, first, second, out)
}

// spread shows how the customers' names spread over the databases, and how many move when there is
// one more.
func spread(s shards, out io.Writer) {
	names, moved := make([]int, len(s)), 0
	more := append(s[:len(s):len(s)], nil)
	for i := range customers {
		name := fmt.Sprintf("customer %d/invoices", i)
		names[s.number(name)]++
		if more.number(name) != s.number(name) {
			moved++
		}
	}
	fmt.Fprintf(out, "Names in each: %v of %d. With one database more, %d move.\n", names, customers, moved)
}

// exclude shows that both servers look for a name in the same database.
func exclude(ctx context.Context, first, second shards, out io.Writer) error {
	for _, name := range []string{"customer 1/invoices", "customer 2/invoices", "customer 7/invoices"} {
		lock, err := first.of(name).Lock(ctx, name)
		if err != nil {
			return err
		}
		if _, err := second.of(name).TryLock(ctx, name); !errors.Is(err, dblock.ErrNotAcquired) {
			return fmt.Errorf("the second server got %q, which the first one has: %w", name, err)
		}
		fmt.Fprintf(out, "%q is in database %d: one server has it, the other does not get it.\n", name,
			first.number(name))
		if err := lock.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// together shows which names LockAll takes together.
func together(ctx context.Context, s shards, out io.Writer) error {
	locks, err := s.lockAll(ctx, "customer 1/invoices", "customer 1/payments")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "LockAll takes the names of one customer together.")
	if err := locks.Unlock(ctx); err != nil {
		return err
	}
	other := "customer 1/invoices"
	for i := 2; len(s) > 1 && s.number(other) == s.number("customer 1/invoices"); i++ {
		other = fmt.Sprintf("customer %d/invoices", i)
	}
	if _, err := s.lockAll(ctx, "customer 1/invoices", other); len(s) > 1 && !errors.Is(err, errApart) {
		return fmt.Errorf("names of two databases were locked together: %w", err)
	}
	fmt.Fprintln(out, "LockAll of names in two databases is refused.")
	return nil
}

// lead shows that an election is in the database of its name.
func lead(ctx context.Context, first, second shards, out io.Writer) error {
	const name = "indexer"
	campaign, finish := context.WithCancel(ctx)
	defer finish()
	err := election.New(first.of(name)).Campaign(campaign, name, func(ctx context.Context, t *election.Term) error {
		defer finish()
		for leader, err := range election.New(second.of(name)).Observe(ctx, name) {
			if err != nil {
				return err
			}
			if leader.Token == t.Token() {
				fmt.Fprintf(out, "The other server sees the leader in database %d.\n", second.number(name))
				return nil
			}
		}
		return ctx.Err()
	})
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil // the campaign ended as it should
	}
	return err
}
