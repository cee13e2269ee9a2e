package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
)

// The lock of a job needs bytes of its own. A name that is too long for it is refused with the
// limit of jobs, and before any I/O: here the database is away.
func TestTheNameOfAJobLeavesRoomForThatOfItsLock(t *testing.T) {
	ran := 0
	job := func(context.Context, *dblock.Lock, time.Time) error {
		ran++
		return nil
	}
	f := dblocktest.New[*struct{}](t)
	runner := jobs.New(f.Client)
	assert.NoError(t, assert.ErrOf(runner.OncePer(t.Context(), strings.Repeat("n", 250), time.Hour, job)))
	assert.Equal(t, ran, 1, "runs under a name of 250 bytes")
	f.Down()
	hourly, err := jobs.NewSchedule(time.UTC, daily{minutes: []int{0}})
	assert.NoError(t, err)
	for _, name := range []string{strings.Repeat("n", 251), strings.Repeat("n", 255), strings.Repeat("n", 256), ""} {
		for op, err := range map[string]error{
			"onceper": assert.ErrOf(runner.OncePer(t.Context(), name, time.Hour, job)),
			"onceat":  assert.ErrOf(runner.OnceAt(t.Context(), name, time.Now(), job)),
			"every":   runner.Every(t.Context(), name, time.Hour, job),
			"everyat": runner.EveryAt(t.Context(), name, hourly, job),
		} {
			var of *dblock.LockError
			if !errors.As(err, &of) || of.Op != op || !errors.Is(err, dblock.ErrInvalidName) ||
				!strings.Contains(err.Error(), `want 1 to 250 bytes: the lock of the job has "once/" before the name`) {
				t.Errorf("%s of %d bytes: %v", op, len(name), err)
			}
		}
	}
}
