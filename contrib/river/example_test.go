package riverlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	riverlock "github.com/dblock-go/dblock/contrib/river"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

type printer struct{ river.WorkerDefaults[charge] }

func (printer) Work(ctx context.Context, job *river.Job[charge]) error {
	fmt.Println("customer", job.Args.Customer, "is charged") // ctx ends when the permit is lost
	return nil
}

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "river")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	open := func(name string) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, name)+
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
		if err != nil {
			log.Fatal(err)
		}
		return db
	}
	locks, queue := open("locks.db"), open("queue.db") // with PostgreSQL, one pool for both
	defer locks.Close()
	defer queue.Close()
	queue.SetMaxOpenConns(1) // as River's driver for SQLite wants it
	if err := migrate.Up(ctx, locks, migrate.SQLite); err != nil {
		log.Fatal(err)
	}
	migrator, err := rivermigrate.New(riversqlite.New(queue), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		log.Fatal(err)
	}

	client, err := dblock.New(sqlite.New(locks))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	twoPerCustomer, err := riverlock.New(client.Locker(), "jobs", func(job *rivertype.JobRow) riverlock.Limit {
		return riverlock.Limit{Key: job.Kind + string(job.EncodedArgs), Permits: 2}
	})
	if err != nil {
		log.Fatal(err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, printer{})
	r, err := river.NewClient(riversqlite.New(queue), &river.Config{
		Workers:    workers,
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Middleware: []rivertype.Middleware{twoPerCustomer},
	})
	if err != nil {
		log.Fatal(err)
	}
	done, stop := r.Subscribe(river.EventKindJobCompleted)
	defer stop()
	if err := r.Start(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := r.Insert(ctx, charge{Customer: "42"}, nil); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := r.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: customer 42 is charged
}
