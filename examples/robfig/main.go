// Command robfig shows a job of robfig/cron v3 that runs once each time that it is due, however
// many servers have it in their crontabs:
//
//	go run .
//
// Each server calls OnceAt when its own cron triggers, with the planned time: all servers name the
// same time, whatever their clocks. The recipe is the function once. A program without a cron of
// its own has EveryAt of package jobs.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func main() {
	folder, err := os.MkdirTemp("", "dblock-robfig-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	for range 3 {
		stop, err := serve(context.Background(), filepath.Join(folder, "app.db"), func(ctx context.Context,
			l *dblock.Lock, due time.Time) error {
			fmt.Println("due at", due.Format(time.TimeOnly), "and run once, under token", l.Token())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		defer stop()
	}
	time.Sleep(5 * time.Second)
}

type job = func(ctx context.Context, l *dblock.Lock, due time.Time) error

// once adds a job to the crontab of this server. One of all servers runs it each time that it is
// due. Add the job before the cron is started. The context of the job ends when its lock is lost.
//
// spec is a cron expression with seconds, in the zone. A night without 2:30 has its job of 2:30,
// and a night with two has one. Servers do not agree on the times of "@every 5m", which begin with
// each server: NewSchedule refuses those; use OncePer.
func once(
	ctx context.Context, c *cron.Cron, client *dblock.Client[*sql.Tx], name string, zone *time.Location, spec string,
	run job,
) error {
	parsed, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(spec)
	if err != nil {
		return err
	}
	schedule, err := jobs.NewSchedule(zone, parsed)
	if err != nil {
		return err
	}
	var id cron.EntryID
	id = c.Schedule(schedule, cron.FuncJob(func() {
		due := c.Entry(id).Prev // the planned time, not the time when it began
		if _, err := jobs.New(client).OnceAt(ctx, name, due, run); err != nil {
			log.Printf("job %s, due at %v: %v", name, due, err)
		}
	}))
	return nil
}

// serve is a server: it has a pool, a client and a cron of its own.
func serve(ctx context.Context, file string, run job) (stop func() error, err error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c := cron.New()
	if err := once(ctx, c, client, "report", time.Local, "* * * * * *", run); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.Start()
	return func() error {
		<-c.Stop().Done() // jobs have returned
		return errors.Join(client.Close(ctx), db.Close())
	}, nil
}
