package dblockprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dblock-go/dblock"
)

// Client is the part of a client that Watch uses. Every *dblock.Client is one.
type Client interface {
	Stats() dblock.Stats
	TTL() time.Duration
}

// Watch adds the gauges of the client. Each scrape reads the client's Stats, without I/O. A second
// call replaces the first; nil ends it.
func (c *Collector) Watch(client Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = client
}

// statsDescs are the metrics of Watch.
type statsDescs struct {
	held, waiting, candidates, oldest, ttl, remaining, listening, dropped *prometheus.Desc
}

func newStatsDescs(labels prometheus.Labels) statsDescs {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, labels) }
	return statsDescs{
		held:    desc("dblock_locks_held", "How many locks the client holds."),
		waiting: desc("dblock_locks_waiting", "How many requests of the client wait for a lock."),
		candidates: desc("dblock_candidates_waiting",
			"How many candidates of elections the client has that wait for as long as another leads."),
		oldest: desc("dblock_oldest_hold_seconds",
			"For how long the client has held the oldest lock that is without the option Progress."),
		ttl: desc("dblock_session_ttl_seconds", "How long the session lasts from a heartbeat on."),
		remaining: desc("dblock_session_remaining_seconds",
			"How long the session lasts if no heartbeat succeeds any more."),
		listening: desc("dblock_listener_up",
			"1 while a listener wakes the waiters; 0: the client polls, or has not waited yet."),
		dropped: desc("dblock_events_dropped_total", "How many events the client could not write."),
	}
}

func (d statsDescs) describe(out chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.held, d.waiting, d.candidates, d.oldest, d.ttl, d.remaining, d.listening,
		d.dropped} {
		out <- one
	}
}

// collect leaves out the metrics that need a session if the client has none.
func (d statsDescs) collect(out chan<- prometheus.Metric, client Client) {
	s := client.Stats()
	out <- gauge(d.held, float64(s.Held))
	out <- gauge(d.waiting, float64(s.Waiting))
	out <- gauge(d.candidates, float64(s.Candidates))
	out <- gauge(d.oldest, s.OldestHold.Seconds())
	out <- prometheus.MustNewConstMetric(d.dropped, prometheus.CounterValue, float64(s.EventsDropped))
	if s.Session != "" {
		out <- gauge(d.ttl, client.TTL().Seconds())
		out <- gauge(d.remaining, max(0, time.Until(s.AliveUntil).Seconds()))
		out <- gauge(d.listening, oneIf(s.Listening))
	}
}

func gauge(desc *prometheus.Desc, value float64) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
