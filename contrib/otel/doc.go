// Package dblockotel reports the locks of a dblock client to OpenTelemetry: as metrics, and as a
// span for each requested lock.
//
//	client, err := dblock.New(postgres.New(pool), dblock.WithObserver(dblockotel.Observer()))
//	…
//	_, err = dblockotel.Watch(client) // the gauges
//
// # Metrics of Observer
//
//	dblock.acquire.duration    histogram, s         Lock and TryLock, from the call to the return
//	dblock.acquire.failures    counter, {failure}   of them, those that did not get the lock
//	dblock.hold.duration       histogram, s         from the grant to the end of the lock
//	dblock.lock.losses         counter, {loss}      locks that were lost, but not a Lease that ran out
//	dblock.job.runs            counter, {run}       runs of jobs that have ended
//	dblock.job.slots.skipped   counter, {slot}      slots that began while an earlier run went on
//	dblock.job.slots.missed    counter, {slot}      slots that no process asked for
//	dblock.heartbeat.duration  histogram, s         round trips that keep the session alive
//	dblock.heartbeat.failures  counter, {failure}   of them, those that failed
//	dblock.listener.losses     counter, {loss}      times that the listener was lost, or could not be made
//
// # Metrics of Watch
//
//	dblock.held.count          up-down counter, {lock}     locks that the client holds
//	dblock.waiting.count       up-down counter, {request}  requests that wait
//	dblock.candidate.count     up-down counter, {request}  candidates of elections that wait while another leads
//	dblock.hold.oldest         gauge, s                    how long the oldest lock is held that is without the option Progress
//	dblock.session.remaining   gauge, s                    until the session ends without a heartbeat
//	dblock.listener.count      up-down counter, {listener} 1: a listener wakes it; 0: it polls, or has not waited yet
//	dblock.events.dropped      counter, {event}            entries of the history that were lost
//
// # Attributes
//
//	dblock.operation   "lock", "trylock" or, of package election, "campaign": of acquire.duration, acquire.failures
//	dblock.lock.mode   "exclusive", "shared" or "permits": likewise
//	error.type         observe.Outcome of the error; absent without an error: of acquire, hold, job.runs and heartbeat
//	dblock.lock.name   only if asked for: WithNamesInMetrics, WithNamesInSpans
//
// Spans are called dblock.lock and dblock.trylock, and have dblock.lock.token once they end. A span
// that failed has the status Error. A refused TryLock has not failed.
package dblockotel
