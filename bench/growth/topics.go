package main

// topic is a section of the page: a benchmark, and its rows.
type topic struct {
	title     string // the things that the benchmark varies follow
	benchmark string
	things    string
	rows      []row
}

// row is a metric of the benchmark.
type row struct {
	title, metric string
	slope         string  // by which unit the slope is shown: "per client"; "": the row has none
	times         float64 // the factor of the slope, if not 0
	plot          string  // the file of the row's plot; "": the row has none
}

// topics are the sections of the page, in their order. They have the figures that a plan goes by;
// scale.txt has all.
var topics = []topic{
	{"Idle clients", "Fleet", "clients", []row{
		{title: "statements per second", metric: "stmt/s", slope: "per client"},
		{title: "bytes of log per second, kB", metric: "log-kB/s", slope: "per client"},
		{title: "CPU of the server, ms per second", metric: "cpu-ms/s", slope: "per client", plot: "scale-clients.svg"},
		{title: "a heartbeat, median, ms", metric: "beat-p50-ms"},
		{title: "a heartbeat, p99, ms", metric: "beat-p99-ms"},
	}},
	{"Held locks of one session", "Holds", "locks", []row{
		{title: "the table with its indexes, MB", metric: "table-MB", slope: "bytes per lock", times: 1e6},
		{title: "a heartbeat, median, µs", metric: "beat-µs"},
		{title: "the list of the session's locks, ms", metric: "list-ms", slope: "µs per lock", times: 1000,
			plot: "scale-locks.svg"},
		{title: "a pair of another name, µs", metric: "pair-µs"},
	}},
	{"Waiters of one name", "Queue", "waiters", []row{
		{title: "they join: per second", metric: "joins/s"},
		{title: "the table with its indexes, MB", metric: "table-MB", slope: "bytes per waiter", times: 1e6},
		{title: "CPU of the server meanwhile, ms per second", metric: "cpu-ms/s", slope: "µs per waiter", times: 1000},
		{title: "a hand-off, median, µs", metric: "handoff-µs", slope: "ns per waiter", times: 1000,
			plot: "scale-waiters.svg"},
	}},
	{"Names that are locked and unlocked", "Rate", "clients", []row{
		{title: "pairs per second", metric: "pairs/s"},
		{title: "CPU of the server for each, µs", metric: "cpu-µs"},
		{title: "bytes of log for each", metric: "log-bytes"},
	}},
	{"Names that are used once", "Fresh", "clients", []row{
		{title: "bytes of the table for each, until it is purged", metric: "bytes/name"},
		{title: "a reaper purges: names per second", metric: "purged/s"},
	}},
	{"Connections on the server", "Connections", "processes", []row{
		{title: "each process holds a lock", metric: "holding-conns", slope: "per process"},
		{title: "all but one of them wait for one as well", metric: "waiting-conns", slope: "per process",
			plot: "scale-connections.svg"},
		{title: "through PgBouncer: each process holds a lock", metric: "pooled-holding-conns"},
		{title: "all but one of them wait for one as well, with `Listen`", metric: "pooled-waiting-conns",
			slope: "per process"},
		{title: "memory of the server for each connection, kB", metric: "kB/conn"},
	}},
}
