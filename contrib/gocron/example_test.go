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
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	gocronlock "github.com/dblock-go/dblock/contrib/gocron"
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
