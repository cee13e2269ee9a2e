// Package certmagiclock gives the storage of CertMagic (github.com/caddyserver/certmagic, which
// Caddy uses) the locks of package dblock. A certificate is obtained or renewed by one instance at
// a time, whatever the storage.
//
//	storage, err := certmagiclock.WithLocks(storage, client.Locker(), "certmagic")
//	…
//	certmagic.Default.Storage = storage
//
// # Limits of CertMagic
//
// CertMagic does not stop the work of an instance that has lost its lock. Before each attempt of an
// operation that it repeats (ObtainCertAsync, RenewCertAsync) it calls RenewLockLease, which takes
// the lock again, or fails if another instance has it: then CertMagic tries again later. Within an
// attempt it is not notified.
//
// CertMagic writes to its storage without a fencing token: an instance that was stopped for longer
// than its TTL may still write when it continues.
//
// certmagic.CleanUpOwnLocks releases the locks of operations that still run: call it before the
// process exits, as its documentation says.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/dblock-go/dblock"
)

// Storage is a certmagic.Storage with the locks of dblock. The storage given to WithLocks does
// everything else. It is safe for concurrent use.
type Storage struct {
	certmagic.Storage
	client dblock.Locker
	prefix string

	mu    sync.Mutex       // guards locks, and handle in each of them
	locks map[string]*lock // by CertMagic's names
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// lock is a name that an operation of this process has locked, or is about to lock.
type lock struct {
	handle dblock.Handle // nil: not yet locked
	over   chan struct{} // closed when another operation of this process may have the name
}

// WithLocks returns the storage with locks of the client instead of its own. All instances that
// share certificates need the same prefix, and others a different one. The names of the locks are
// dblock.Name(prefix, name). WithLocks does no I/O.
//
// It returns ErrInvalidOption for a nil storage, a nil client and an empty prefix.
func WithLocks(storage certmagic.Storage, client dblock.Locker, prefix string) (*Storage, error) {
	switch {
	case storage == nil:
		return nil, invalid("the storage is nil")
	case client == nil:
		return nil, invalid("the client is nil")
	case prefix == "":
		return nil, invalid("the prefix is empty")
	}
	return &Storage{Storage: storage, client: client, prefix: prefix, locks: map[string]*lock{}}, nil
}

// String describes the storage in CertMagic's logs.
func (s *Storage) String() string { return fmt.Sprintf("%v, with locks of dblock", s.Storage) }

// Lock waits for the lock of a name, first come first served over all instances, until ctx ends.
// Heartbeats of the client prolong the lock until Unlock. Errors are those of dblock.Client.Lock.
//
// Operations of one instance have a name one after the other. CertMagic unlocks by name, so two
// holders of a name, one of which has lost the lock, could not be distinguished.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for {
		l, busy := s.enter(name)
		if l != nil {
			return s.acquire(ctx, name, l, s.client.Lock)
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return fmt.Errorf("dblock: certmagic: lock %q: %w: this process has it: %w", s.name(name),
				dblock.ErrNotAcquired, context.Cause(ctx))
		}
	}
}

// TryLock takes the lock if it is free. It returns false, without an error, if another operation,
// of this instance or another, has the lock or waits for it.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	l, _ := s.enter(name)
	if l == nil {
		return false, nil
	}
	err := s.acquire(ctx, name, l, s.client.TryLock)
	if errors.Is(err, dblock.ErrNotAcquired) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock, also if ctx has ended. It returns dblock.ErrLost, which CertMagic
// writes into its log, if the lock was lost meanwhile, and dblock.ErrNotHeld if it was not locked.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	l := s.locks[name]
	if l == nil || l.handle == nil {
		s.mu.Unlock()
		return s.notHeld("unlock", name)
	}
	h := l.handle
	l.handle = nil
	s.mu.Unlock()
	defer s.leave(name, l)
	return h.Unlock(ctx)
}

// RenewLockLease does nothing while the lock is held: heartbeats prolong it, and the duration is
// not used. It takes a lost lock again if it is free, since CertMagic reads its storage again after
// that. Otherwise it returns dblock.ErrLost, joined with the error of dblock.Client.TryLock. It
// returns dblock.ErrNotHeld if the name was not locked.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	l := s.locks[name]
	if l == nil || l.handle == nil {
		s.mu.Unlock()
		return s.notHeld("renew", name)
	}
	old := l.handle
	s.mu.Unlock()
	lost := context.Cause(old.Context())
	if lost == nil {
		return nil
	}
	h, err := s.client.TryLock(ownerless{ctx}, s.name(name))
	if err != nil {
		return errors.Join(fmt.Errorf("dblock: certmagic: renew %q: %w", old.Name(), lost), err)
	}
	s.mu.Lock()
	if l.handle == old {
		l.handle = h
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return errors.Join(s.notHeld("renew", name), h.Unlock(ctx)) // it was unlocked meanwhile
}

// enter takes the name for an operation of this process. If another operation has it, enter returns
// nil, and a channel that is closed when that operation has ended.
func (s *Storage) enter(name string) (entered *lock, busy <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[name]; l != nil {
		return nil, l.over
	}
	entered = &lock{over: make(chan struct{})}
	s.locks[name] = entered
	return entered, nil
}

func (s *Storage) leave(name string, l *lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, name)
	close(l.over)
}

func (s *Storage) acquire(
	ctx context.Context, name string, l *lock,
	take func(ctx context.Context, name string, options ...dblock.LockOption) (dblock.Handle, error),
) error {
	h, err := take(ownerless{ctx}, s.name(name))
	if err != nil {
		s.leave(name, l)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.handle = h
	return nil
}

func (s *Storage) name(name string) string { return dblock.Name(s.prefix, name) }

func (s *Storage) notHeld(op, name string) error {
	return fmt.Errorf("dblock: certmagic: %s %q: %w", op, s.name(name), dblock.ErrNotHeld)
}

// ownerless is a context without values, so that a lock taken under it has no owner yet. Under the
// context of one lock, two instances of one client would both enter a name.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func invalid(what string) error {
	return fmt.Errorf("dblock: certmagic: %w: %s", dblock.ErrInvalidOption, what)
}
