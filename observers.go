package dblock

import (
	"context"
	"time"
)

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
	switch {
	case first.HoldEnd == nil:
		both.HoldEnd = second.HoldEnd
	case second.HoldEnd != nil:
		both.HoldEnd = func(r HoldResult) { first.HoldEnd(r); second.HoldEnd(r) }
	}
	switch {
	case first.Heartbeat == nil:
		both.Heartbeat = second.Heartbeat
	case second.Heartbeat != nil:
		both.Heartbeat = func(took time.Duration, err error) { first.Heartbeat(took, err); second.Heartbeat(took, err) }
	}
	switch {
	case first.Listener == nil:
		both.Listener = second.Listener
	case second.Listener != nil:
		both.Listener = func(up bool, err error) { first.Listener(up, err); second.Listener(up, err) }
	}
	return both
}
