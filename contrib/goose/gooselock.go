// Package gooselock lets one process at a time run the migrations of goose v3
// (github.com/pressly/goose/v3), with the locks of package dblock: on PostgreSQL, MySQL, MariaDB
// and SQLite, for which goose has no lock of its own.
//
//	locker, err := gooselock.New(client.Locker(), "migrations")
//	…
//	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(locker))
//	…
//	results, err := provider.Up(ctx)
//
// The lock needs the tables of dblock before goose runs: migrate.Up of dblock makes them, safe from
// any number of processes, under a version table of its own.
//
// # Limits of goose
//
// goose is not notified of a lock that is lost while it migrates: it continues, and Unlock reports
// dblock.ErrLost when it has finished. goose also takes a connection of its pool before it asks for
// the lock, so a pool of one connection cannot serve both. Without an adapter, and with neither of
// these limits:
//
//	err := client.Do(ctx, "migrations", func(ctx context.Context, _ *dblock.Lock) error {
//		_, err := provider.Up(ctx) // its context ends when the lock is lost
//		return err
//	})
//
// There, too, a heartbeat of the client needs a connection within each TTL. While goose migrates
// over the only one, the client has none: give the client a pool of its own, or a TTL that is
// longer than the migrations.
package gooselock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock"
)

// Locker is a lock.Locker of goose, for goose.WithLocker. Any number of providers may share one:
// they have the lock one after the other. It is safe for concurrent use.
type Locker struct {
	client  dblock.Locker
	name    string
	options []dblock.LockOption

	turn chan struct{} // has a value from Lock to the end of Unlock

	mu   sync.Mutex    // guards held
	held dblock.Handle // from Lock to Unlock
}

var _ lock.Locker = (*Locker)(nil)

// New makes a Locker with a name, which all processes that migrate one database have in common.
// Options are those of dblock.Client.Lock, such as dblock.Metadata. New does no I/O.
//
// It returns ErrInvalidOption for a nil client, and ErrInvalidName for an empty name.
func New(client dblock.Locker, name string, options ...dblock.LockOption) (*Locker, error) {
	switch {
	case client == nil:
		return nil, fmt.Errorf("dblock: gooselock: %w: the client is nil", dblock.ErrInvalidOption)
	case name == "":
		return nil, fmt.Errorf("dblock: gooselock: %w: the name is empty", dblock.ErrInvalidName)
	}
	return &Locker{client: client, name: name, options: options, turn: make(chan struct{}, 1)}, nil
}

// Lock waits for the lock, first come first served over all Lockers, until ctx ends: it has no
// time-out of its own. The pool is not used: the lock is in the database of the client. Errors are
// those of dblock.Client.Lock.
//
// A provider that runs under a lock's context also waits for its turn, even if that lock has the
// same name. So does the next provider of a Locker whose lock was lost, until Unlock: goose does
// not say which of its providers unlocks.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("dblock: gooselock: lock %q: %w: another provider of this process has it: %w", l.name,
			dblock.ErrNotAcquired, context.Cause(ctx))
	}
	h, err := l.client.Lock(ownerless{ctx}, l.name, l.options...)
	if err != nil {
		<-l.turn
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = h
	return nil
}

// Unlock releases the lock, also if ctx has ended. It returns dblock.ErrLost if the lock was lost
// meanwhile: another process may have run migrations at the same time. It returns dblock.ErrNotHeld
// without a Lock before it.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	l.mu.Lock()
	h := l.held
	l.held = nil
	l.mu.Unlock()
	if h == nil {
		return fmt.Errorf("dblock: gooselock: unlock %q: %w", l.name, dblock.ErrNotHeld)
	}
	defer func() { <-l.turn }()
	return h.Unlock(ctx)
}

// ownerless is a context without values, so that a lock taken under it has no owner yet. Two
// providers under the context of one lock would both enter it.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }
