package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

type tx = *sql.Tx

// nightly runs a job at half past two in Berlin until ctx ends, unless another server does.
func nightly(ctx context.Context, client *dblock.Client[tx], job string, report jobs.Func) error {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	halfPastTwo, err := cron.ParseStandard("30 2 * * *")
	if err != nil {
		return err
	}
	schedule, err := jobs.NewSchedule(berlin, halfPastTwo)
	if err != nil {
		return err
	}
	return jobs.New(client).EveryAt(ctx, job, schedule, report, jobs.RetryFailed(3, time.Minute))
}

// serve runs the job in each slot until ctx ends, unless another server does.
func serve(ctx context.Context, client *dblock.Client[tx], server, job string, slot time.Duration,
	report func() error,
) error {
	return jobs.New(client).Every(ctx, job, slot, func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Printf("  %s writes the report of %s, under token %d\n", server, slot.Format("15:04:05.000"), l.Token())
		return report()
	}, jobs.RetryFailed(3, slot/10))
}
