// Package reaper clears up after dead clients. It expires their sessions, and ends those of
// processes that have ended on its host before that (HostFolder). It hands their locks to the next
// waiter, removes their places from the queues, and ends fixed leases that have expired. It also
// deletes old rows: idle names, dead sessions, and the history of events and runs. If the row of a
// name does not agree with the name's queue and shares, the reaper corrects it.
//
// Each client runs a reaper. Run and Sweep run one alone, in a cron job or an operator's tool. Any
// number may run at once. Each step is a transaction of its own that first locks and reads the rows
// on which it decides, so that two reapers do nothing twice. A reaper skips rows that are locked,
// and tries them again in the next sweep.
//
// No waiter depends on a reaper: a waiter takes the lock over from a dead holder by itself, and
// each hand-off skips dead waiters. The reaper is for names without waiters.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/tell"
)

// purgeEvery is the number of sweeps of Run of which one also purges idle rows, which is not
// urgent.
const purgeEvery = 12

// Report counts the work of a sweep.
type Report struct {
	Expired   int // sessions that were declared dead: without a heartbeat, or because their processes have ended
	HandedOn  int // grants to waiters for the locks of the dead: one lock may go to several readers
	Freed     int // locks and shares without a next holder
	Dismissed int // places in queues of dead sessions
	Purged    int // lock rows that were idle for longer than the retention
	Forgotten int // dead sessions deleted
	Deleted   int // events and runs older than the history, and guards of locks that have ended
	Recounted int // names whose rows counted other waiters or units than there were
	Postponed int // takeovers that a guarded transaction refused, or that another transaction was making
}

// Zero reports whether the sweep had no work.
func (r Report) Zero() bool { return r == Report{} }

// String lists the counts, in words.
func (r Report) String() string {
	return fmt.Sprintf("%d sessions expired, %d locks handed on, %d freed, %d waiters dismissed, %d rows purged, %d "+
		"sessions forgotten, %d records deleted, %d names recounted, %d postponed",
		r.Expired, r.HandedOn, r.Freed, r.Dismissed, r.Purged, r.Forgotten, r.Deleted, r.Recounted, r.Postponed)
}

// Option configures a reaper.
type Option func(*config)

type config struct {
	interval, retention, history time.Duration
	batch                        int
	report                       func(Report)
	log                          *slog.Logger
	telling                      []*tell.Queue // of report, and of the logger
	events                       bool
	crash                        crash.Setting
	while                        func() bool
}

// Interval sets the pause between sweeps, which varies by a quarter at random so that reapers do
// not run at the same time. Default: 15 s.
func Interval(d time.Duration) Option { return func(c *config) { c.interval = d } }

// Retention sets how long the rows of idle names and dead sessions are kept. Tokens rise across a
// purge as long as the database's clock is not set back by more than this. Default: 24 h.
func Retention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// History sets how long events are kept, and runs of jobs after they and their slots have ended.
// Events with the token of the present holder of a name are kept while it holds the name: they
// identify a leader (package election), however long the term. The latest slot of a job of OnceAt
// is kept for ever: no earlier one is run after it. Default: 30 days.
func History(d time.Duration) Option { return func(c *config) { c.history = d } }

// Batch limits the rows that one statement deletes or lists. Default: 500.
func Batch(n int) Option { return func(c *config) { c.batch = n } }

// Events makes the reaper write each lock that it takes from the dead into the history (kind
// "expired"). A client with WithEvents gives this option to its own reaper. Default: off.
func Events() Option { return func(c *config) { c.events = true } }

// While makes Run sweep only when f reports true. A client gives this option to its own reaper,
// which rests while the client has no session. Default: always.
func While(f func() bool) Option { return func(c *config) { c.while = f } }

// HostFolder sets the folder in which the processes of this host show that they live, as
// dblock.WithHostFolder does for a client: the reaper ends the sessions of those that have ended
// before their leases do. Default: the client's own, or as of dblock.WithHostFolder.
func HostFolder(path string) Option {
	return func(c *config) { c.crash = crash.Setting{Path: filepath.Clean(path)} }
}

// WithoutCrashDetection leaves it to the leases alone when a session has ended. Default: see
// HostFolder.
func WithoutCrashDetection() Option { return func(c *config) { c.crash = crash.Setting{Off: true} } }

// OnReport sets a function that is called after each sweep that had work. No sweep waits for it:
// the calls come one by one, a moment later, and Run waits a second for the last. Default: the
// report is logged, at level INFO if it has expired sessions, and otherwise at DEBUG.
func OnReport(f func(Report)) Option { return func(c *config) { c.report = f } }

// Logger sets the logger of reports and failures. No sweep waits for it, as with dblock.WithLogger.
// Default: slog.Default.
func Logger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

func configOf(options []Option) (config, error) {
	c := config{interval: 15 * time.Second, retention: 24 * time.Hour, history: 30 * 24 * time.Hour, batch: 500,
		log: slog.Default()}
	for _, o := range options {
		if o == nil {
			return c, errors.New("dblock: reaper: a nil Option")
		}
		o(&c)
	}
	switch {
	case c.interval < 10*time.Millisecond:
		return c, fmt.Errorf("dblock: reaper: Interval %v: want at least 10ms", c.interval)
	case c.retention < 0:
		return c, fmt.Errorf("dblock: reaper: Retention %v: want 0 or more", c.retention)
	case c.history < 0:
		return c, fmt.Errorf("dblock: reaper: History %v: want 0 or more", c.history)
	case c.crash.Path != "" && !filepath.IsAbs(c.crash.Path):
		return c, fmt.Errorf("dblock: reaper: HostFolder(%q): want an absolute path", c.crash.Path)
	case c.batch < 1:
		return c, fmt.Errorf("dblock: reaper: Batch %d: want at least 1", c.batch)
	case c.log == nil:
		return c, errors.New("dblock: reaper: Logger(nil): want a logger, slog.DiscardHandler for silence")
	}
	if c.while == nil {
		c.while = func() bool { return true }
	}
	log, logging := tell.Logger(c.log)
	reporting := tell.Calls(log, "OnReport")
	c.log, c.telling = log, []*tell.Queue{reporting, logging}
	if report := c.report; report != nil {
		c.report = func(r Report) { reporting.Add(func() { report(r) }) }
	} else {
		c.report = func(r Report) {
			level := slog.LevelDebug
			if r.Expired > 0 {
				level = slog.LevelInfo
			}
			c.log.Log(context.Background(), level, "dblock: reaper: "+r.String())
		}
	}
	return c, nil
}

// Check returns the error that Run and Sweep would return for these options.
func Check(options ...Option) error {
	_, err := configOf(options)
	return err
}

// Run sweeps until ctx ends, and then returns nil. A failed sweep is retried after the interval. An
// outage is logged when it begins, at growing intervals, and when it ends. Only options out of
// range are an error.
func Run[TX any](ctx context.Context, engine engines.Engine[TX], options ...Option) error {
	c, err := configOf(options)
	if err != nil {
		return err
	}
	defer tell.Flush(c.telling...)
	r := sweeper{config: c, engine: inside.Of(engine).Backend}
	outages := outage.New(c.log, "dblock: reaper: a sweep")
	timer := clock.From(ctx).NewTimer(c.interval)
	defer timer.Stop()
	for sweeps := 1; ; sweeps++ {
		timer.Reset(c.interval*7/8 + rand.N(c.interval/4))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !c.while() {
			sweeps--
			continue
		}
		report, err := r.sweep(ctx, c.batch, sweeps%purgeEvery == 0)
		if !report.Zero() {
			c.report(report)
		}
		if err != nil && ctx.Err() == nil {
			outages.Failed(err)
		} else if err == nil {
			outages.Worked()
		}
	}
}

// Sweep does all the work that is due now, once, and returns its report, even with an error.
func Sweep[TX any](ctx context.Context, engine engines.Engine[TX], options ...Option) (Report, error) {
	c, err := configOf(options)
	if err != nil {
		return Report{}, err
	}
	r := sweeper{config: c, engine: inside.Of(engine).Backend}
	var total Report
	for {
		before := r.after
		report, err := r.sweep(ctx, c.batch, true)
		total = total.plus(report)
		done := report.Expired + report.Dismissed + report.HandedOn + report.Freed
		// Each sweep lists postponed orphans again, so go on only if this one did other work too.
		more := r.full && done > 0 || r.after != "" && r.after != before
		if err != nil || !more {
			return total, err
		}
	}
}

func (r Report) plus(o Report) Report {
	return Report{
		Expired: r.Expired + o.Expired, HandedOn: r.HandedOn + o.HandedOn, Freed: r.Freed + o.Freed,
		Dismissed: r.Dismissed + o.Dismissed, Purged: r.Purged + o.Purged, Forgotten: r.Forgotten + o.Forgotten,
		Deleted: r.Deleted + o.Deleted, Recounted: r.Recounted + o.Recounted, Postponed: r.Postponed + o.Postponed,
	}
}
