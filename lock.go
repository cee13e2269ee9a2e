package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
)

// Lock is a lock that is held, or was. Each successful Lock or TryLock returns one of its own, to
// be unlocked once. It is safe for concurrent use. On a nil *Lock the methods return
// ErrInvalidOption, a zero value, or a Context that has ended with cause ErrNotHeld.
type Lock client.Lock

func (l *Lock) core() *client.Lock { return (*client.Lock)(l) }

// do runs f on the lock. The error names the operation and the lock.
func (l *Lock) do(op string, f func(core *client.Lock) error) error {
	if !l.core().Valid() {
		return &LockError{op, "", client.ErrNilLock}
	}
	return fail(op, l.Name(), f(l.core()))
}

// get returns what the lock says of itself. It returns the zero value if the lock is nil.
func get[T any](l *Lock, f func(core *client.Lock) T) (v T) {
	if l.core().Valid() {
		v = f(l.core())
	}
	return v
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return get(l, (*client.Lock).Name) }

// Token returns the fencing token: with every grant of a name it rises, across crashes, restarts
// and failovers. Send it along with whatever is done under the lock, and let the receiver refuse
// what comes with a lower one than it has seen (Kleppmann, How to do distributed locking, 2016).
// Entering a lock again does not change it; coming back as the same Owner in another process does,
// and TryUpgrade.
func (l *Lock) Token() int64 { return get(l, (*client.Lock).Token) }

// Context ends when the lock does: with cause ErrLost before anybody else can hold the name, as
// long as this process is not stopped for longer than its margin; with cause ErrNotHeld at Unlock;
// with ErrClosed at Close. After UnlockTx it ends as that says. It carries the values of the
// context that Lock was called with, but does not end with it, and it carries the owner: the same
// name locks again under it at once.
func (l *Lock) Context() context.Context {
	if !l.core().Valid() {
		return neverHeld
	}
	return l.core().Context()
}

// neverHeld is the context of a lock that is nil.
var neverHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: the lock is nil", ErrNotHeld))
	return ctx
}()

// Unlock gives the lock back; if it was entered several times, the last Unlock does. The next
// waiter holds it when Unlock returns. With a ctx that has already ended it still tries for a few
// seconds, so that a deferred Unlock needs no context of its own; likewise with one under the
// lock's own, which ends while Unlock is at work.
//
// ErrLost if the lock was lost before. ErrUnavailable after one TTL without an answer; the error
// has the figures of the pool. After any error but ErrLost the lock counts as given up all the
// same, and the client goes on trying to give it back; Unlock may be called again. Otherwise a
// second call returns what the first did.
//
// After UnlockTx, Unlock waits for that transaction to end: it then finds the lock released, and
// returns nil, or releases it, if the transaction was rolled back.
func (l *Lock) Unlock(ctx context.Context) error {
	return l.do("unlock", func(core *client.Lock) error { return core.Unlock(ctx) })
}

// Downgrade makes a reader of a writer, without a moment in between in which another writer could
// come in. The readers that stand first in the queue enter with the same commit. The lock keeps
// its token, its context and its fixed lease.
//
// (While the name rests, see MinHold, they wait until that is over.) Readers come in beside a
// transaction that the lock guards.
//
// ErrLost as Unlock. ErrNotHeld after UnlockTx. ErrUnsupported on a share, and where the lock was
// entered several times. ErrCapacity where a waiter wants permits of the name. After any other
// error the lock is one of the two; whatever is called next finds out which, and a lock that turns
// out to be a writer still has a new token.
func (l *Lock) Downgrade(ctx context.Context) error {
	return l.do("downgrade", func(core *client.Lock) error { return core.Downgrade(ctx) })
}

// TryUpgrade makes a writer of a reader, at once and before all waiters, if no other holder
// has a share of the name. If one has, it returns ErrNotAcquired at once, and the lock is what it
// was: so that of two readers that both want to write neither waits for the other. To wait, unlock,
// and Lock: then others may write in between, and what was read has to be read again. A writer has
// a new token, higher than those of all readers before it; Token returns it.
//
// ErrLost as Unlock. ErrNotHeld after UnlockTx. ErrUnsupported where the lock was entered several
// times. After any other error the lock is one of the two; whatever is called next finds out which.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	return l.do("tryupgrade", func(core *client.Lock) error { return core.TryUpgrade(ctx) })
}

// Extend moves the end of a lock with a Lease to d from now, by the database's clock: for work that
// takes longer than was thought. It never moves the end back, so that nothing that relies on it
// (Context, Guard, Until) is cut short. The token stays. Nothing repeats it: call it again before
// the lease is over. d: at least 100 ms.
//
// ErrLost where the lease is over, or the lock was lost, also if nobody has it yet. ErrNotHeld
// after UnlockTx.
// ErrInvalidOption for a shorter d, and on a lock without Lease, which lives as long as its client.
// While the database is away or a transaction has locked the name, Extend tries until ctx ends.
// After any error the lock ends when it would have; others may have to wait until the later end.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	return l.do("extend", func(core *client.Lock) error {
		if d < contract.MinLease {
			return fmt.Errorf("%w: Extend %v: want at least %v", ErrInvalidOption, d, contract.MinLease)
		}
		return core.Extend(ctx, d)
	})
}

// Progress says that the work under the lock gets on: see the option Progress. It does no I/O. On a
// lock without that option, and on one that is over, it does nothing.
func (l *Lock) Progress() {
	if l.core().Valid() {
		l.core().Progress()
	}
}

// Until is when the lock ends if its client does not reach the database any more from now on, by
// this machine's clock: every heartbeat moves it, except where a fixed lease ends before. The zero
// time for a lock that is not held any more, and after UnlockTx.
func (l *Lock) Until() time.Time { return get(l, (*client.Lock).Until) }

// Shared reports whether others may have the name as well: the lock is a reader's, or permits, or
// after an error that is not known.
func (l *Lock) Shared() bool { return get(l, (*client.Lock).Shared) }
