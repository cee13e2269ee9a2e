package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
)

type tx = *sql.Tx

// reports counts the runs of all servers: the second one fails.
var reports atomic.Int64

// serve asks for the job at every tick, and mostly finds that it was run.
func serve(ctx context.Context, client *dblock.Client[tx], server, job string, slot time.Duration) error {
	tick := time.NewTicker(slot / 10)
	defer tick.Stop()
	for {
		_, err := client.OncePer(ctx, job, slot, func(ctx context.Context, l *dblock.Lock[tx], slot time.Time) error {
			fmt.Printf("  %s writes the report of %s, under token %d\n", server, slot.Format("15:04:05.000"), l.Token())
			return report()
		}, dblock.RetryFailed())
		if err != nil && ctx.Err() == nil && !errors.Is(err, errPrinter) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

var errPrinter = errors.New("the printer is out of paper")

// report is a job of no time at all.
func report() error {
	if reports.Add(1) == 2 {
		return errPrinter
	}
	return nil
}
