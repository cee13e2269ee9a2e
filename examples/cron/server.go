package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

type tx = *sql.Tx

// reports counts the runs of all servers: the second one fails.
var reports atomic.Int64

// serve runs the job in each slot until ctx ends, unless another server does.
func serve(ctx context.Context, client *dblock.Client[tx], server, job string, slot time.Duration) error {
	return jobs.New(client).Every(ctx, job, slot, func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Printf("  %s writes the report of %s, under token %d\n", server, slot.Format("15:04:05.000"), l.Token())
		return report()
	}, jobs.RetryFailed(3, slot/10))
}

var errPrinter = errors.New("the printer is out of paper")

// report is a job that takes no time.
func report() error {
	if reports.Add(1) == 2 {
		return errPrinter
	}
	return nil
}
