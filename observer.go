package dblock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/client"
)

// Observer is told what a client does, for metrics and traces. Every field may be nil. The
// callbacks are called synchronously, by several goroutines at once. They must return soon, and
// must not wait for the client. A panic in one is not recovered.
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

	// AcquireEnd is called with that context when the attempt is over.
	AcquireEnd func(ctx context.Context, a Attempt, r AcquireResult)

	// HoldEnd is called once for each lock that AcquireEnd told of, after it, when the lock was
	// unlocked, lost, or released by Close.
	HoldEnd func(r HoldResult)

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
	Err   error // nil: unlocked; otherwise it matches ErrLost or ErrClosed
}

// WithObserver sets what is told of the client's attempts, locks, heartbeats and listener. Of an
// engine without sessions it is told of attempts and locks. Default: nothing is told, which costs
// nothing.
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
