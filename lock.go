package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/inside"
)

// Lock is a lock that is held, or was. Each successful Lock or TryLock returns one of its own, to
// be unlocked once. It is safe for concurrent use. On a nil *Lock the methods return
// ErrInvalidOption, a zero value, or a Context that has ended with cause ErrNotHeld.
type Lock struct{ handle }

type handle = inside.Inside[*client.Lock]

// core returns the client's lock; nil if no client returned this one.
func (l *Lock) core() *client.Lock {
	if l == nil {
		return nil
	}
	return inside.Of(l.handle)
}

// valid returns the client's lock, or an error if there is none.
func (l *Lock) valid() (*client.Lock, error) {
	if core := l.core(); core.Valid() {
		return core, nil
	}
	return nil, client.ErrNilLock
}

// get calls f with the client's lock, and returns the zero value if there is none.
func get[T any](l *Lock, f func(core *client.Lock) T) (v T) {
	if core := l.core(); core.Valid() {
		v = f(core)
	}
	return v
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return get(l, (*client.Lock).Name) }

// Token returns the fencing token, which is higher than all tokens of the name before it, across
// crashes, restarts and failovers. Send it along with every write under the lock. The receiver
// refuses a lower token than it has seen (Kleppmann, How to do distributed locking, 2016). To enter
// a lock again does not change the token. TryUpgrade does, and so does the same Owner that enters
// the lock in another process.
func (l *Lock) Token() int64 { return get(l, (*client.Lock).Token) }

// Context ends when the lock does. The cause is ErrLost before anybody else can hold the name, as
// long as this process is not suspended for longer than its margin; ErrNotHeld at Unlock; ErrClosed
// at Close. UnlockTx says when it ends after that. Context has the values of the context that Lock
// was called with, but does not end with it. It has the owner, too: under it the same name is
// entered again at once.
//
// Err, Done and context.Cause read the clock: whoever asks them after a suspension is told the end,
// before any timer has fired. A context that was derived from it earlier, with context.WithTimeout
// for example, is told a moment later. Ask this one before an act that no token protects.
func (l *Lock) Context() context.Context {
	if core := l.core(); core.Valid() {
		return core.Context()
	}
	return neverHeld
}

// neverHeld is the context of a lock that is nil.
var neverHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: the lock is nil", ErrNotHeld))
	return ctx
}()

// Unlock releases the lock. A lock that was entered several times is released by the last Unlock.
// The next waiter holds it when Unlock returns. If ctx has ended, or ends with the lock, Unlock
// still tries for a few seconds, so that a deferred Unlock needs no context of its own.
//
// ErrLost if the lock was lost before. ErrUnavailable after one TTL without an answer; the error
// has the figures of the pool. After any other error, also if ctx ended first, the lock counts as
// released, and the client keeps retrying the release in the background. Unlock may then be called
// again. Otherwise a second call returns the same as the first.
//
// If a transaction of the application's guards the lock (Client.Guard) and is still open, Unlock
// does not wait for it, but the next waiter does: the transaction keeps the lock until its end.
//
// After UnlockTx, Unlock waits for the end of that transaction. If the transaction was committed,
// Unlock returns nil. If it was rolled back, Unlock releases the lock.
func (l *Lock) Unlock(ctx context.Context) error {
	core, err := l.valid()
	if err == nil {
		err = core.Unlock(ctx)
	}
	return fail("unlock", l.Name(), err)
}

// Downgrade makes a reader of a writer, without a moment in which another writer could enter. The
// readers at the head of the queue enter with the same commit, also beside a transaction that the
// lock guards; under a MinHold they enter when it has elapsed. The lock keeps its token, its
// context and its fixed lease.
//
// ErrLost as Unlock. ErrNotHeld after UnlockTx. ErrUnsupported on a share, and if the lock was
// entered several times. ErrCapacity if a waiter wants permits of the name. After any other error
// its mode is unknown until the next call; a lock that turns out to be a writer still has a new
// token.
func (l *Lock) Downgrade(ctx context.Context) error {
	core, err := l.valid()
	if err == nil {
		err = core.Downgrade(ctx)
	}
	return fail("downgrade", l.Name(), err)
}

// TryUpgrade makes a writer of a reader, at once and before all waiters, if no other holder has a
// share of the name. Otherwise it returns ErrNotAcquired at once, and the lock stays as it was: of
// two readers that both want to write neither waits for the other. To wait, unlock and Lock. Others
// may write in between, so that the data has to be read again. A writer has a new token, higher
// than those of all readers before it, which Token returns.
//
// ErrLost as Unlock. ErrNotHeld after UnlockTx. ErrUnsupported if the lock was entered several
// times. After any other error its mode is unknown until the next call.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	core, err := l.valid()
	if err == nil {
		err = core.TryUpgrade(ctx)
	}
	return fail("tryupgrade", l.Name(), err)
}

// Extend moves the end of a lock with a Lease to d from now, by the database's clock: for work that
// takes longer than planned. It never moves the end back, so that Context, Guard and Until stay
// true. The token stays. Extend is not repeated by the client: call it again before the lease has
// expired. d: at least 100 ms.
//
// ErrLost if the lease has expired or the lock was lost, even if it has no new holder yet.
// ErrNotHeld after UnlockTx. ErrInvalidOption for a shorter d, and on a lock without Lease, which
// lives as long as its client. While the database is away or a transaction has locked the name,
// Extend retries until ctx ends. After any error the lock ends when it would have ended before;
// others may have to wait until the later end.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	core, err := l.valid()
	if err == nil && d < contract.MinLease {
		err = fmt.Errorf("%w: Extend %v: want at least %v", ErrInvalidOption, d, contract.MinLease)
	}
	if err == nil {
		err = core.Extend(ctx, d)
	}
	return fail("extend", l.Name(), err)
}

// Progress reports that the work under the lock makes progress: see the option Progress. It does no
// I/O. It does nothing on a lock without that option, or that has ended.
func (l *Lock) Progress() {
	if core := l.core(); core.Valid() {
		core.Progress()
	}
}

// Until returns when the lock ends if its client reaches the database no more from now on, by this
// machine's clock. Every heartbeat moves it, up to the end of a fixed lease. The zero time for a
// lock that is not held any more, and after UnlockTx.
func (l *Lock) Until() time.Time { return get(l, (*client.Lock).Until) }

// Shared reports whether others may hold the name, too: the lock is a reader's, or permits, or its
// mode is unknown after an error.
func (l *Lock) Shared() bool { return get(l, (*client.Lock).Shared) }
