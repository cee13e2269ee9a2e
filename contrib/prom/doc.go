// Package dblockprom has Prometheus metrics of dblock clients, a Grafana dashboard of them
// (dashboard.json) and alert rules (alerts.yml).
//
//	metrics := dblockprom.New("orders")
//	client, err := dblock.New(postgres.New(pool), dblock.WithObserver(metrics.Observer()))
//	…
//	metrics.Watch(client)
//	prometheus.MustRegister(metrics)
//
// Every metric has the label client, with the text given to New: each client of a process has a
// Collector of its own.
//
// # Metrics of Observer
//
//	dblock_acquire_duration_seconds    histogram, by op, mode, outcome: Lock and TryLock
//	dblock_acquire_failures_total      by outcome: of them, those that did not get the lock
//	dblock_hold_duration_seconds       histogram, by outcome: from the grant to the end of the lock
//	dblock_locks_lost_total            locks that were lost, but not a Lease that ran out
//	dblock_job_runs_total              by outcome: runs of jobs that have ended
//	dblock_job_slots_left_out_total    by why: slots in which nothing was begun
//	dblock_heartbeat_duration_seconds  histogram: round trips that keep the session alive
//	dblock_heartbeat_failures_total    of them, those that failed
//	dblock_listener_losses_total       times that the listener was lost, or could not be made
//
// # Metrics of Watch, without I/O
//
//	dblock_locks_held                  locks that the client holds
//	dblock_locks_waiting               requests of the client that wait
//	dblock_candidates_waiting          candidates of elections that wait while another leads
//	dblock_oldest_hold_seconds         how long the oldest lock is held that is without the option Progress
//	dblock_session_ttl_seconds         how long the session lasts from a heartbeat on
//	dblock_session_remaining_seconds   how long it lasts from now on, if no heartbeat succeeds any more
//	dblock_listener_up                 1: a listener wakes it; 0: it polls, or has not waited yet
//	dblock_events_dropped_total        entries of the history that were lost
//
// # Metrics of Inspect, which reads the database
//
//	dblock_inspection_success            0: the database could not be read, and the following are missing
//	dblock_inspection_truncated          1: there were more names than are read
//	dblock_inspection_duration_seconds   how long it took to read the names
//	dblock_names_held                    names that are held, by any client
//	dblock_names_contended               names that are waited for, by any client
//	dblock_longest_queue_waiters         how many wait for the name with the longest queue
//	dblock_oldest_waiter_seconds         for how long the oldest waiter has waited
//
// # Labels
//
//	op       "lock", "trylock", or "campaign" of a candidate (package election)
//	mode     "exclusive", "shared" or "permits"
//	outcome  observe.Outcome of the error: "ok", "refused", "timeout", …
//	why      "skipped": an earlier run went on; "missed": no process asked
//	name     only if asked for, by Names
package dblockprom
