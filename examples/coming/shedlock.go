package coming

import (
	"context"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

// Report runs a job each quarter of an hour, in one of all processes.
func Report(ctx context.Context, client *Client, report jobs.Func) error {
	quarterly, err := cron.ParseStandard("*/15 * * * *")
	if err != nil {
		return err
	}
	schedule, err := jobs.NewSchedule(time.UTC, quarterly)
	if err != nil {
		return err
	}
	return jobs.New(client).EveryAt(ctx, "report", schedule, report, jobs.RetryFailed(3, time.Minute))
}

// CleanUp runs a task, unless another process runs it, or began to run it in the last 14 minutes.
func CleanUp(ctx context.Context, client *Client, task func(ctx context.Context) error) error {
	lock, err := client.TryLock(ctx, "clean up", dblock.MinHold(14*time.Minute))
	if errors.Is(err, dblock.ErrNotAcquired) {
		return nil // skipped
	}
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return task(lock.Context()) // ends with the lock, and not with ctx
}
