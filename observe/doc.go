// Package observe reports the work of a client to its application, for metrics and traces.
//
//	client, err := dblock.New(engine, dblock.WithObserver(observe.Observer{
//		HoldEnd: func(r observe.HoldResult) {
//			held.WithLabelValues(observe.Outcome(r.Err)).Observe(r.Held.Seconds())
//		},
//	}))
//
// The modules contrib/otel and contrib/prom are such observers.
//
// # Terms
//
// Every call of Lock, TryLock, LockTx and TryLockTx is an attempt, and so is each name of LockAll
// and the lock of a job. A call that is refused before its first statement is no attempt: for its
// name or options, for a context that had ended, or for a client that was closed. An owner that
// enters its lock again makes another attempt.
//
// A hold begins when an attempt acquires a lock. It ends with the last Unlock, with a loss, or with
// Close. A lock of LockTx ends with the transaction, without the client's knowledge: it has no
// HoldEnd and no token.
//
// # Flow
//
// The client waits for no callback. One goroutine calls them one by one, a moment later, in the
// order of the events. A callback that is slow or blocks delays no heartbeat, no loss, no grant and
// no release. It delays the callbacks after it: some thousand are kept, and the log says how many
// more were left out. Close waits for callbacks for a second.
//
// AcquireStart is the exception. The goroutine that requests the lock calls it, so that several
// calls may run at once, and it delays that request: it must return soon, and must not wait for the
// client.
package observe
