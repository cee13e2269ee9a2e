// Package jobs runs a job once in each slot of time, over all processes that share a database.
//
//	runner := jobs.New(client)
//	err := runner.Every(ctx, "report", time.Hour, func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
//		return report(ctx, slot)
//	}, jobs.RetryFailed(3, time.Minute)) // nil when ctx has ended
//
// # Terms
//
// A slot is a time for which a job is due. Slots of an interval are counted by the database's
// clock: a slot begins where that clock, in microseconds since 1970, is a multiple of the interval.
// Slots of a schedule are moments, such as the times of a cron expression. A run is the execution
// of a job in a slot, in one process. Its outcome is the error that the job returned.
//
// Every and EveryAt are loops, which every process calls. OncePer and OnceAt are one call of such a
// loop, for an application with a scheduler of its own.
//
// # Flow
//
// A call takes the lock of the job, which has the job's name behind "once/". It claims the slot in
// the database, runs the job under the lock, and writes the outcome. A call that finds the slot run
// or running returns without a run.
//
// # Promises
//
// At most one call runs a slot, however short the job is, and however far the clocks of processes
// are apart. Runs of a job do not overlap either: during a run of any slot, no other run begins.
// The next call after that runs the latest slot. Slots that have passed meanwhile get no run.
//
// A slot whose run has failed, or whose process died, counts as run, unless RetryFailed is given.
//
// # A change of the interval
//
// Another interval has other slots. A slot of the new interval counts as run if it was run, or if a
// run under another interval began in it. So no slot is run twice, and each slot in which no run
// began gets one: a shorter interval holds from its next slot on, a longer one from the end of the
// slot of the last run. Changing an interval back and forth causes no extra runs. While processes
// use two intervals at once, each interval has its slots, and the job may run more often than
// either says.
//
// # Slots of a schedule
//
// A slot of a schedule is a moment, to the microsecond, independent of the zone in which it is
// written. Every process must use the same moments.
//
// Slots of a name are run in their order. Once a slot has a run, failed or not, no earlier slot is
// run: the call gets false and nil. A slot that begins during a run of the name is run after that,
// if a call asks for it before a later slot has a run. So a process that names the latest time of
// its schedule as it starts catches up: one run, late, for all missed slots. The latest slot of
// each name is remembered for ever, the others for as long as the reaper's History says.
//
// A job may change between an interval and a schedule. A run of an interval that began at a moment
// or later counts as the run of that moment, and a slot of an interval in which the run of a moment
// began counts as run.
//
// # Failures
//
// While the database is away, OncePer and OnceAt retry for up to a TTL: also in a client that has
// never reached it, and to write the outcome. Every and EveryAt retry until their context ends. If
// a job panics, so does the call, and the run's Err has the value and the stack.
package jobs
