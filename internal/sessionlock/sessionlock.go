// Package sessionlock is the client of a server's own locks (advisory locks, named locks), which
// end with the session that took them. A Keeper keeps all locks of one client on one connection,
// the pinned one. A Client makes handles of its keeper's locks. Neither knows SQL: packages
// advisory and named each give them a Server.
//
// # Two keys for a name
//
// The pinned connection runs one statement at a time for all goroutines of the client, so no
// statement on it may wait for a lock. A client that has to wait does so on a second connection,
// the waiter's. A session lock cannot be handed from one session to another, so there is a gap
// between the moment when the waiter could have the lock and the moment when the pinned connection
// has it. Therefore each name is two keys to the server: the lock itself, and the queue for it. The
// waiter waits for the queue, which the server keeps in order over all clients. As the first of the
// queue, it waits until the lock is free. The pinned connection takes the lock while the waiter
// still has the queue. Then the waiter leaves. A request that does not wait looks at the queue
// first and does not pass it. So no client polls, and none barges.
//
// # One waiter for a name
//
// Goroutines of one client that want the same name queue in the process, in the order of their
// requests. The first of them has the client's waiter. If its request is abandoned, the next
// inherits the place. At most MaxWaiters names have a waiter at a time; for any further name the
// client polls until there is a waiter for it.
//
// # Loss
//
// The pinned connection is lost if a statement on it fails, if Watch fails, which runs while the
// connection is idle, or if the server denies a lock that this side believed to hold. Then every
// possession is lost. The connection is closed after the possessions have ended. Waiting requests
// continue with a new connection.
//
// # Absence
//
// A wait survives any absence of the server that is shorter than the TTL. It is retried after
// growing pauses. Once it stands in the server's queue again, the next failure begins a TTL of its
// own. After a TTL without that, all requests of the name fail. A client that never had a
// connection fails at once, and so does a request that does not wait. While the pinned connection
// cannot be opened, the client leaves the server's queue, so that it blocks no other client.
package sessionlock

import (
	"context"
	"time"
)

const (
	// MaxWaiters bounds the waiting connections of one client, beside the pinned one.
	MaxWaiters = 16

	// quiet is the time after which an idle pinned connection is watched. Interrupting Watch costs
	// a little, and under traffic the statements themselves notice a loss.
	quiet = 100 * time.Millisecond
	// answerTimeout bounds a statement on the pinned connection. None of them waits for a lock.
	answerTimeout = 15 * time.Second
	// connectTimeout bounds the opening of a connection.
	connectTimeout = 15 * time.Second
	// lookAgain is the polling interval of a name without a waiter.
	lookAgain = 50 * time.Millisecond
	// firstPause and longestPause bound the average pause before a failed wait is retried.
	firstPause, longestPause = 50 * time.Millisecond, time.Second
	// linger is the time for which a waiter's connection is kept that no name needs.
	linger = 5 * time.Second
)

// Server opens the two kinds of connections. K is the key of a name, which the server locks. Errors
// are of the kinds of package driver.
type Server[K comparable] interface {
	// Key returns the server's key for a name. Names with the same key exclude each other.
	Key(name string) K

	// Pin opens the connection that has the locks. It refuses a connection that cannot keep locks.
	Pin(ctx context.Context) (Pin[K], error)

	// Waiter opens a connection to wait on.
	Waiter(ctx context.Context) (Waiter[K], error)
}

// Pin is the connection that has the locks. One goroutine at a time calls its methods.
type Pin[K comparable] interface {
	// Server identifies the running server that the connection leads to.
	Server() string

	// Do performs operations in their order, in as few round trips as it can. It sets OK of each,
	// or Err if the server refused the operation and did nothing. Do's own error is the end of the
	// connection. No operation waits for a lock.
	Do(ctx context.Context, ops []*Op[K]) error

	// Watch blocks until ctx ends, and returns nil if the connection is in order, or until the
	// connection is lost.
	Watch(ctx context.Context) error

	// Close ends the connection. It waits for the network for at most one second.
	Close()
}

// Waiter is a connection to wait on. One goroutine at a time calls its methods. After an error it
// is closed.
type Waiter[K comparable] interface {
	// Server identifies the running server that the connection leads to.
	Server() string

	// Wait joins the end of a key's queue, unless the waiter is the first of it already. It returns
	// when the waiter is the first and the lock is free; the waiter stays the first. When ctx ends,
	// the wait is cancelled in the server too.
	Wait(ctx context.Context, key K, shared bool) error

	// Leave leaves the queue.
	Leave(ctx context.Context, key K) error

	// Close ends the connection. It waits for the network for at most one second.
	Close()
}

// Kind is the kind of an operation on the pinned connection.
type Kind int

const (
	Try  Kind = iota // take the lock if it is free and has no queue; OK: taken
	Take             // take the lock if it is free, for the first of the queue; OK: taken
	Give             // release the lock once; not OK: the server reports that it was not held
)

// Op is one operation on a key. An exclusive lock is taken once before it is released; shares are
// taken and released any number of times.
type Op[K comparable] struct {
	Kind   Kind
	Key    K
	Shared bool
	OK     bool
	Err    error
}
