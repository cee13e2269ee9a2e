// Command outbox shows a transactional outbox with one relay. Shops write an order and its message
// in one transaction. Two processes stand for election as the relay, and the leader publishes the
// messages in order, a batch at a time. The program kills the leader in the middle of a batch, and
// checks that no message is lost, that the order holds, and that only that batch is sent again.
//
//	go run ./examples/outbox                                      on an SQLite file of its own
//	go run ./examples/outbox -dsn postgres://user:pass@host/db    on PostgreSQL
//	go run ./examples/outbox -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// relay.go and shop.go show the use of dblock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

const (
	customers  = 3
	ordersEach = 20            // of each customer
	backlog    = 10            // of them, before the first relay starts
	fatal      = batchSize + 3 // how many messages the first relay publishes before it is killed
)

func main() {
	if text, ok := os.LookupEnv(relayProcess); ok {
		exit(serve(text))
	}
	dsn := flag.String("dsn", "", database.Usage)
	ttl := flag.Duration("ttl", 2*time.Second, "after what time without a sign of life a relay is succeeded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, *dsn, *ttl))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, dsn string, ttl time.Duration) (err error) {
	db, err := database.Open(ctx, dsn, "outbox")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	if err := createTables(ctx, db); err != nil {
		return err
	}
	defer dropTables(db)
	client, err := dblock.New(db.EngineOverSQL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	s := shop{db, client}

	fmt.Printf("%d customers order on %s, before there is a relay.\n", customers, db.Place)
	if err := s.orders(ctx, 1, backlog); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &broker{fail: cancel}
	for _, name := range []string{"Ada", "Grace"} {
		var p *process // err is not declared again: finish adds to it
		if p, err = b.start(assignment{db.Source, ttl, name}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.finish()) }()
	}
	if err := s.orders(ctx, backlog+1, ordersEach); err != nil {
		return err
	}
	if err := s.drained(ctx); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return b.report()
}

// orders places the orders with the numbers from first to last, of all customers at once.
func (s shop) orders(ctx context.Context, first, last int) error {
	work, working := errgroup.WithContext(ctx)
	for customer := range customers {
		work.Go(func() error {
			for number := first; number <= last; number++ {
				if err := s.order(working, customer, number); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}
