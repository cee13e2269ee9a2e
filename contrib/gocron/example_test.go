package gocronlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	gocronlock "github.com/dblock-go/dblock/contrib/gocron"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/example"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// Three replicas have the same job at the same time. One of them runs it.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "gocron")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	over := make(chan struct{})
	for range 3 {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "app.db")+
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
			log.Fatal(err)
		}
		client, err := dblock.New(sqlite.New(db))
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close(ctx)
		locker, err := gocronlock.Every(client, 24*time.Hour)
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()
		report := locker.Task("report", func(ctx context.Context, lock dblock.Handle) error {
			fmt.Println("the report is written")
			return nil
		})
		_, err = scheduler.NewJob(
			gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(report), gocron.WithName("report"),
			gocron.WithEventListeners(
				gocron.AfterJobRuns(func(uuid.UUID, string) { over <- struct{}{} }),
				gocron.AfterLockError(func(uuid.UUID, string, error) { over <- struct{}{} }), // another replica has it
			))
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
	}
	for range 3 {
		<-over
	}
	// Output: the report is written
}

// The latest night had no run: the first replica that starts makes up for it.
func ExampleAt() {
	t := &example.T{}
	defer t.End()
	client := dblocktest.New[*sql.Tx](t).Client // an application opens a database
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	written := make(chan struct{})
	err = nightly(scheduler, client, func(ctx context.Context, lock dblock.Handle) error {
		fmt.Println("the report is written")
		close(written)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-written
	// Output: the report is written
}

// nightly adds a job that one of all replicas runs at half past two in Berlin.
func nightly(
	scheduler gocron.Scheduler, client *dblock.Client[*sql.Tx], report func(context.Context, dblock.Handle) error,
) error {
	const halfPastTwo = "CRON_TZ=Europe/Berlin 30 2 * * *"
	schedule, err := cron.ParseStandard(halfPastTwo)
	if err != nil {
		return err
	}
	locker, err := gocronlock.At(client, schedule)
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(
		gocron.CronJob(halfPastTwo, false), gocron.NewTask(locker.Task("nightly", report)), gocron.WithName("nightly"),
		gocron.WithDistributedJobLocker(locker), gocron.WithCronImplementation(&gocronlock.Cron{}),
		gocron.WithStartAt(gocron.WithStartImmediately()), // after an outage
	)
	return err
}
