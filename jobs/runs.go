package jobs

import (
	"context"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/page"
)

// Run is one run of a job in its slot.
type Run struct {
	Name       string
	Slot       int64     // the database's time divided by the interval, rounded down; of OnceAt microseconds since 1970
	SlotBegins time.Time // by the database's clock: the slot that the job was given
	SlotEnds   time.Time // by the database's clock; of OnceAt the slot itself
	Token      int64     // of the lock under which it ran
	Host       string    // of the process that ran it
	Thread     string
	Began      time.Time // by the database's clock
	Ended      time.Time // the zero time: it still runs, or its process died
	Err        string    // why it failed; "": it succeeded, or has not ended
	Tries      int       // the number of times that it was begun
}

// Runs lists the runs of a job, the latest first. After a change of the interval the number of a
// slot may come again: then the later run replaces the earlier one. The iteration ends after the
// first error.
func (r *Runner) Runs(ctx context.Context, name string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		var before time.Time
		page.Each(0, yield, func(size int) (runs []Run, more bool, err error) {
			var rows []driver.Run
			err = r.client.Inquire(ctx, func(ctx context.Context, engine driver.Backend) (err error) {
				rows, err = engine.Runs(ctx, driver.RunFilter{Name: name, Before: before}, size)
				return err
			})
			for _, row := range rows {
				before = row.Began
				runs = append(runs, runOf(row))
			}
			return runs, len(rows) == size, fail("runs", name, err)
		})
	}
}

// Jobs lists the latest run of each job, in the order of the bytes of names, a page at a time. A
// job is listed until the reaper removes its last run (History). The iteration ends after the first
// error.
func (r *Runner) Jobs(ctx context.Context) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		after := ""
		page.Each(0, yield, func(size int) (runs []Run, more bool, err error) {
			var rows []driver.Run
			err = r.client.Inquire(ctx, func(ctx context.Context, engine driver.Backend) (err error) {
				rows, err = engine.Runs(ctx, driver.RunFilter{After: after}, size)
				return err
			})
			for _, row := range rows {
				after = row.Name
				runs = append(runs, runOf(row))
			}
			return runs, len(rows) == size, fail("jobs", after, err)
		})
	}
}

// begins returns when the slot of a run begins. A slot of an interval ends when the next number
// begins, and a moment is its own number.
func begins(r driver.Run) time.Time {
	ends := r.SlotEnds.UnixMicro()
	if r.Slot < 0 || r.Slot == ends {
		return r.SlotEnds
	}
	return time.UnixMicro(ends / (r.Slot + 1) * r.Slot)
}

func runOf(r driver.Run) Run {
	run := Run{
		Name: r.Name, Slot: r.Slot, SlotBegins: begins(r), SlotEnds: r.SlotEnds, Token: r.Token,
		Host: r.Host, Thread: r.Thread, Began: r.Began, Ended: r.Ended, Tries: r.Tries,
	}
	if r.Failed {
		run.Err = r.Detail
	}
	return run
}
