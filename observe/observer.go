package observe

import (
	"context"
	"time"
)

// Observer is a set of callbacks. Every field may be nil. A panic in a callback is not recovered.
type Observer struct {
	// AcquireStart is called before the first statement of an attempt. The attempt continues under
	// the context that AcquireStart returns, which must be derived from ctx. Lock.Context has the
	// values of that context, so that spans nest. The context of a function given to Do and that of
	// Locks do not have them.
	AcquireStart func(ctx context.Context, a Attempt) context.Context

	// AcquireEnd is called with the context of AcquireStart after the attempt. The context, and the
	// lock too, may have ended before.
	AcquireEnd func(ctx context.Context, a Attempt, r AcquireResult)

	// HoldEnd is called once for each lock that was acquired, after its AcquireEnd, when the lock
	// was unlocked, lost, or released by Close.
	HoldEnd func(r HoldResult)

	// RunEnd is called after a run of OncePer, OnceAt or Every.
	RunEnd func(r RunResult)

	// SlotsLeftOut is called before a run of OncePer or Every if no run began in some slots since
	// the last run. One process gets the call. With this callback each run takes one statement
	// more.
	SlotsLeftOut func(s LeftOut)

	// Heartbeat is called when a heartbeat was answered or has failed. An error is no loss yet: the
	// next heartbeat may come in time.
	Heartbeat func(took time.Duration, err error)

	// Listener is called when the client begins to listen for its grants (up), and when it stops or
	// cannot begin, with the reason. The reason of a client that polls is ErrUnsupported.
	Listener func(up bool, err error)
}

// Attempt is a request for a name.
type Attempt struct {
	Name    string
	Wait    bool // false: TryLock, TryLockTx or TryLockAll
	Shared  bool // a share of the name, beside other holders
	Permits int  // units of a semaphore; 0: not a semaphore

	Candidate bool // of package election: a candidate waits for as long as another one leads
}

// AcquireResult is the result of an attempt.
type AcquireResult struct {
	Took  time.Duration
	Token int64 // 0: the attempt has failed, or the lock has no token
	Err   error // nil: acquired; otherwise the error that Lock returns
}

// HoldResult is the end of a lock.
type HoldResult struct {
	Name  string
	Token int64
	Held  time.Duration
	Err   error // nil: unlocked; otherwise ErrLost or ErrClosed; for an expired Lease Outcome is "expired"
}

// RunResult is the end of a run of a job.
type RunResult struct {
	Name string    // of the job
	Slot time.Time // the beginning of the slot; of OnceAt the slot itself
	Took time.Duration
	Err  error // nil: the job succeeded; otherwise the error that OncePer returns
}

// LeftOut counts slots of a job without a run.
type LeftOut struct {
	Name    string
	Skipped int64 // slots that began during a run of an earlier slot
	Missed  int64 // slots that no process asked for: there was none, or all were late
}

// All makes one Observer of several, such as one that counts and one that traces. They are called
// in the order in which they are given, but AcquireEnd in the opposite order, as deferred calls
// are. Each AcquireStart gets the context that the previous one returned; AcquireEnd gets the
// context of the last. A callback that no observer has stays nil, and costs nothing.
func All(observers ...Observer) Observer {
	var all Observer
	for _, next := range observers {
		all = merge(all, next)
	}
	return all
}

// merge makes one Observer of two. It takes a callback that only one of them has as it is.
func merge(first, second Observer) Observer {
	both := first
	switch {
	case first.AcquireStart == nil:
		both.AcquireStart = second.AcquireStart
	case second.AcquireStart != nil:
		both.AcquireStart = func(ctx context.Context, a Attempt) context.Context {
			return second.AcquireStart(first.AcquireStart(ctx, a), a)
		}
	}
	switch {
	case first.AcquireEnd == nil:
		both.AcquireEnd = second.AcquireEnd
	case second.AcquireEnd != nil:
		both.AcquireEnd = func(ctx context.Context, a Attempt, r AcquireResult) {
			second.AcquireEnd(ctx, a, r)
			first.AcquireEnd(ctx, a, r)
		}
	}
	both.HoldEnd = one(first.HoldEnd, second.HoldEnd)
	both.RunEnd = one(first.RunEnd, second.RunEnd)
	both.SlotsLeftOut = one(first.SlotsLeftOut, second.SlotsLeftOut)
	both.Heartbeat = two(first.Heartbeat, second.Heartbeat)
	both.Listener = two(first.Listener, second.Listener)
	return both
}

// one makes one callback of two. Either of them may be nil.
func one[A any](first, second func(A)) func(A) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(a A) { first(a); second(a) }
}

// two is one for callbacks with two arguments.
func two[A, B any](first, second func(A, B)) func(A, B) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(a A, b B) { first(a, b); second(a, b) }
}
