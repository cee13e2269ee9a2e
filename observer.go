package dblock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/client"
)

// Observer is told what a client does, for metrics and traces. Every field may be nil. A panic in a
// callback is not recovered.
//
// Nothing waits for a callback: one goroutine of the client calls them one by one, in the order of
// what happened, a moment later. A callback that is slow or blocks delays no heartbeat, no loss, no
// grant and no release, but the callbacks after it: up to some thousand wait, and of more the log
// says how many were left out. Close waits for them for a second. AcquireStart alone is called by
// the goroutine that asks for the lock, so by several at once, and delays that call: it must return
// soon, and must not wait for the client.
//
// Every call of Lock, TryLock, LockTx and TryLockTx is an attempt, and so is each name of LockAll
// and the lock of OncePer. Calls that are refused before anything is asked are none: for their name
// or options, with a context that had ended, of a client that was closed. An owner that enters its
// lock again makes an attempt too, and the end of its one hold comes with the last Unlock. LockTx
// ends with the transaction, of which the client does not hear: it has no HoldEnd, and no token.
type Observer struct {
	// AcquireStart is called before anything is asked of the database. The attempt goes on under
	// the context that it returns, which must be derived from ctx. Lock.Context has its values, so
	// that spans nest. The context of a function given to Do, and that of Locks, have not.
	AcquireStart func(ctx context.Context, a Attempt) context.Context

	// AcquireEnd is called with that context when the attempt is over. The context may have ended
	// by then, and the lock, too.
	AcquireEnd func(ctx context.Context, a Attempt, r AcquireResult)

	// HoldEnd is called once for each lock that AcquireEnd told of, after it, when the lock was
	// unlocked, lost, or released by Close.
	HoldEnd func(r HoldResult)

	// RunEnd is called when a run of OncePer, OnceAt or Every has ended.
	RunEnd func(r RunResult)

	// SlotsLeftOut is called before a run of OncePer or Every, where slots were left out between
	// that and the run before it, and once for them, over all processes. It makes each run cost one
	// statement more.
	SlotsLeftOut func(s LeftOut)

	// Heartbeat is called when a heartbeat was answered or has failed. An error is no loss yet: the
	// next one may come in time.
	Heartbeat func(took time.Duration, err error)

	// Listener is called when the client listens for its grants, and when it does not any more, or
	// could not begin to, with the reason. Where it polls, that is ErrUnsupported.
	Listener func(up bool, err error)
}

// Attempt is one try to get a name.
type Attempt struct {
	Name    string
	Wait    bool // false: TryLock, TryLockTx or TryLockAll
	Shared  bool // the name is asked for together with others
	Permits int  // units of a semaphore; 0: it is none
}

// AcquireResult is what came of an attempt.
type AcquireResult struct {
	Took  time.Duration
	Token int64 // 0: the attempt has failed, or the lock has none
	Err   error // nil: acquired; otherwise as of Lock
}

// HoldResult is the end of a lock.
type HoldResult struct {
	Name  string
	Token int64
	Held  time.Duration
	Err   error // nil: unlocked; otherwise it matches ErrLost or ErrClosed; of a Lease that ran out Outcome is "expired"
}

// RunResult is the end of a run of a job.
type RunResult struct {
	Name string    // of the job
	Slot time.Time // when it began; of OnceAt the slot itself
	Took time.Duration
	Err  error // nil: the job went well; otherwise what it returned, or what OncePer returns beside that
}

// LeftOut are slots of a job in which it was not begun.
type LeftOut struct {
	Name    string
	Skipped int64 // a run of an earlier slot went on when they began
	Missed  int64 // nobody asked for them: no process was there, or all were late
}

// WithObserver sets what is told of the client's attempts, locks, jobs, heartbeats and listener. Of
// an engine without sessions it is told of attempts and locks. Default: nothing is told, which
// costs nothing.
func WithObserver(o Observer) Option {
	return func(c *client.Config) { c.Observer = &observer{o} }
}

// observer is an Observer as the client sees it.
type observer struct{ to Observer }

func (o *observer) AcquireStart(ctx context.Context, a client.Acquisition) context.Context {
	if o.to.AcquireStart == nil {
		return ctx
	}
	return o.to.AcquireStart(ctx, Attempt(a))
}

func (o *observer) AcquireEnd(ctx context.Context, a client.Acquisition, took time.Duration, token int64, err error) {
	if o.to.AcquireEnd != nil {
		o.to.AcquireEnd(ctx, Attempt(a), AcquireResult{took, token, err})
	}
}

func (o *observer) HoldEnd(name string, token int64, held time.Duration, err error) {
	if o.to.HoldEnd != nil {
		o.to.HoldEnd(HoldResult{name, token, held, err})
	}
}

func (o *observer) RunEnd(name string, slot time.Time, took time.Duration, err error) {
	if o.to.RunEnd != nil {
		o.to.RunEnd(RunResult{name, slot, took, err})
	}
}

func (o *observer) SlotsLeftOut(name string, skipped, missed int64) {
	if o.to.SlotsLeftOut != nil {
		o.to.SlotsLeftOut(LeftOut{name, skipped, missed})
	}
}

func (o *observer) Heartbeat(took time.Duration, err error) {
	if o.to.Heartbeat != nil {
		o.to.Heartbeat(took, err)
	}
}

func (o *observer) Listener(up bool, err error) {
	if o.to.Listener != nil {
		o.to.Listener(up, err)
	}
}

// Observers makes one Observer of several, for WithObserver: one that counts and one that traces,
// say. They are called in the order in which they are given, but AcquireEnd in the opposite order,
// as deferred calls are. Each AcquireStart gets the context that the one before it returned;
// AcquireEnd gets the context of the last. A callback that none of them has stays nil, and costs
// nothing.
func Observers(observers ...Observer) Observer {
	var all Observer
	for _, next := range observers {
		all = observedBy(all, next)
	}
	return all
}

// observedBy makes one Observer of two. A callback that only one of them has is taken as it is.
func observedBy(first, second Observer) Observer {
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

// one makes one callback of two, either of which may be nil; two is the same with two arguments.
func one[A any](first, second func(A)) func(A) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(a A) { first(a); second(a) }
}

func two[A, B any](first, second func(A, B)) func(A, B) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(a A, b B) { first(a, b); second(a, b) }
}
