package dblockprom

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// seconds are the bounds of the histograms: a lock is taken within a millisecond, or waited for and
// held for an hour. There are no native histograms beside them: a server that scrapes those drops
// the buckets that the dashboard reads.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// Collector has the metrics of one client. It is safe for concurrent use.
type Collector struct {
	group func(name string) string // nil: no names

	acquires       *prometheus.HistogramVec
	failures       *prometheus.CounterVec
	holds          *prometheus.HistogramVec
	losses         *prometheus.CounterVec
	runs           *prometheus.CounterVec
	leftOut        *prometheus.CounterVec
	heartbeats     prometheus.Histogram
	missed         prometheus.Counter
	listenerLosses prometheus.Counter
	stats          statsDescs
	queues         queueDescs

	mu         sync.Mutex // guards the fields below
	watched    Client     // nil: none
	inspection *inspection
}

// Option configures a Collector. A nil Option changes nothing.
type Option func(*Collector)

// Names adds the label name to the metrics of acquires, holds and losses, with the result of group
// for the name of a lock. group MUST return few different texts, since each is a time series of its
// own: for instance the part of the name before the first slash. Default: no names.
func Names(group func(name string) string) Option {
	return func(c *Collector) { c.group = group }
}

// New makes a Collector, to be registered. client is the label that distinguishes several clients;
// "": there is one. Without Names, counters begin at 0 for every outcome that deserves an alert, so
// that rate and increase see the first one.
func New(client string, options ...Option) *Collector {
	c := &Collector{}
	for _, o := range options {
		if o != nil {
			o(c)
		}
	}
	labels := prometheus.Labels{"client": strings.ToValidUTF8(client, "\uFFFD")}
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: seconds}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}
	}
	c.acquires = prometheus.NewHistogramVec(histogram("dblock_acquire_duration_seconds",
		"How long locks were asked for."),
		c.named("op", "mode", "outcome"))
	c.failures = prometheus.NewCounterVec(counter("dblock_acquire_failures_total",
		"How many requests did not get their lock."),
		c.named("outcome"))
	c.holds = prometheus.NewHistogramVec(histogram("dblock_hold_duration_seconds", "How long locks were held."),
		c.named("outcome"))
	c.losses = prometheus.NewCounterVec(counter("dblock_locks_lost_total",
		"How many locks were lost while they were held."), c.named())
	c.runs = prometheus.NewCounterVec(counter("dblock_job_runs_total", "How many runs of jobs have ended."),
		c.named("outcome"))
	c.leftOut = prometheus.NewCounterVec(counter("dblock_job_slots_left_out_total",
		"How many slots of jobs nothing was begun in."), c.named("why"))
	c.heartbeats = prometheus.NewHistogram(histogram("dblock_heartbeat_duration_seconds", "How long heartbeats took."))
	c.missed = prometheus.NewCounter(counter("dblock_heartbeat_failures_total", "How many heartbeats failed."))
	c.listenerLosses = prometheus.NewCounter(
		counter("dblock_listener_losses_total", "How often the listener was lost, or could not be made."))
	c.stats, c.queues = newStatsDescs(labels), newQueueDescs(labels)
	if c.group == nil {
		c.losses.WithLabelValues()
		for _, outcome := range []string{"refused", "timeout", "canceled", "deadlock", "unavailable", "failed"} {
			c.failures.WithLabelValues(outcome)
		}
		c.runs.WithLabelValues("failed")
		for _, why := range []string{skipped, missed} {
			c.leftOut.WithLabelValues(why)
		}
	}
	return c
}

// named adds the label for the names of locks, if Names was given.
func (c *Collector) named(labels ...string) []string {
	if c.group != nil {
		labels = append(labels, "name")
	}
	return labels
}

// values adds the value of that label as valid UTF-8: anything else would panic.
func (c *Collector) values(name string, values ...string) []string {
	if c.group != nil {
		values = append(values, strings.ToValidUTF8(c.group(name), "\uFFFD"))
	}
	return values
}

func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.acquires, c.failures, c.holds, c.losses, c.runs, c.leftOut, c.heartbeats, c.missed,
		c.listenerLosses}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, one := range c.collectors() {
		one.Describe(out)
	}
	c.stats.describe(out)
	c.queues.describe(out)
}

// Collect implements prometheus.Collector. It does I/O only after Inspect was called.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, one := range c.collectors() {
		one.Collect(out)
	}
	c.mu.Lock()
	watched, inspection := c.watched, c.inspection
	c.mu.Unlock()
	if watched != nil {
		c.stats.collect(out, watched)
	}
	if inspection != nil {
		c.queues.collect(out, inspection.latest())
	}
}
