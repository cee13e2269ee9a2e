package store

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// sweepPause is the shortest time between two sweeps of a client.
	sweepPause = 50 * time.Millisecond
	// sweptBeside is the time for which the sweep of one process of the host serves all. It is less
	// than the time between two sweeps of a waiter.
	sweptBeside = 80 * time.Millisecond
	// busyPause is the pause after a sweep that could not take everything, failedPause that after a
	// failure of the database.
	busyPause, failedPause = 200 * time.Millisecond, time.Second
	// mostStrangers limits the sessions of others that a client knows.
	mostStrangers = 1000
	// longestTaking is the time after which a sweep takes no further lock of a session. The next
	// sweep goes on.
	longestTaking = 100 * time.Millisecond
	// sweepShare is the part of a TTL that a sweep may take. A database that does not answer holds
	// up nobody for longer.
	sweepShare = 5
)

// folder returns the folder in which the sessions of this host show that their processes live; "":
// there is none. If create is true, the engine makes its own.
func (s *Store) folder(ctx context.Context, create bool) crash.Folder {
	return s.config.Crash.Folder(s.Engine.HostFolder, create, func() string { return s.Database(ctx, false) })
}

// Sweep buries the sessions whose processes have ended on this host, and takes their locks and
// places in queues. It reports whether it has buried one, or taken anything. Without a dead process
// it sends no statement. It leaves the sweep to a goroutine of this client that sweeps, and to
// another process that has swept within the last 80 ms. Without a session of its own, a client does
// not sweep.
func (m *Sessions) Sweep(ctx context.Context) (changed bool) { return m.sweep(ctx, sweptBeside) }

func (m *Sessions) sweep(ctx context.Context, unless time.Duration) (changed bool) {
	select {
	case m.sweeping <- struct{}{}:
		defer func() { <-m.sweeping }()
	default:
		return false
	}
	s, clock, pause := m.Last(), m.store.config.Clock, sweepPause
	if s == nil || s.Unseen != nil || clock.Now() < m.nextSweep {
		return false
	}
	defer func() { m.nextSweep = clock.Now() + pause }()
	within, cancel := context.WithTimeout(ctx, m.store.config.TTL/sweepShare)
	defer cancel()
	for p := range m.store.folder(within, false).Ended(unless) {
		if m.strangers[p.Session] {
			continue
		}
		did, err := m.bury(within, s.ID, p.Session)
		changed = changed || did
		switch {
		case err == nil, errors.Is(err, errStranger) && p.Old():
			p.Remove()
		case errors.Is(err, errStranger):
			note(m.strangers, p.Session)
		case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
			pause = busyPause
		default:
			if pause = failedPause; ctx.Err() == nil {
				m.taking.Failed(err, "session", p.Session)
			}
			return changed
		}
	}
	return changed
}

var (
	errStranger = errors.New("the session is none of this database, which may be a copy of another")
	errLeft     = driver.Fail(driver.ErrBusy, errors.New("a lock of the session could not be taken yet"))
)

// bury ends a session whose process has ended, and takes what it has. It reports whether it has
// done anything. errStranger, and errLeft.
func (m *Sessions) bury(ctx context.Context, by, session string) (did bool, err error) {
	m.noteEnd(session)
	because := m.because(session)
	var burial driver.Burial
	err = m.store.Call(ctx, func(ctx context.Context) (err error) {
		burial, err = m.store.Engine.Bury(ctx, session, by, because)
		return err
	})
	switch {
	case err != nil:
		return false, err
	case burial == driver.Missing:
		return false, errStranger
	}
	did = burial == driver.Buried
	for until := m.store.config.Clock.Now() + longestTaking; ; {
		found, taken, err := m.take(ctx, session, until, func(name string, holder protocol.Holder) {
			m.keeper.Reclaimed(name, holder, because)
		})
		switch did = did || taken > 0; {
		case err != nil || found == 0:
			return did, err
		case taken < found:
			return did, errLeft
		}
	}
}

// noteEnd notes that the process of a session has ended.
func (m *Sessions) noteEnd(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	note(m.ended, session)
}

// because says why a session is dead; "": its lease has expired.
func (m *Sessions) because(session string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended[session] {
		return crash.Because(m.store.config.Host)
	}
	return ""
}

func note(sessions map[string]bool, session string) {
	if len(sessions) >= mostStrangers {
		clear(sessions)
	}
	sessions[session] = true
}

// take takes some of the locks and places of a dead session, until a time, and returns the numbers
// of those that it found and of those that it could take: a transaction that a lock guards may
// still be open. It calls took with each lock.
func (m *Sessions) take(
	ctx context.Context, session string, until time.Duration, took func(name string, holder protocol.Holder),
) (found, taken int, err error) {
	var claims []driver.Claim
	err = m.store.Call(ctx, func(ctx context.Context) error {
		claims, err = m.store.Engine.Claims(ctx, session, 64)
		return err
	})
	for _, has := range claims {
		if m.store.config.Clock.Now() > until {
			break
		}
		holder := protocol.Holder{Session: session, Attempt: has.Attempt, Grant: protocol.Grant{Token: has.Token}}
		gone, given := m.store.Do(ctx, protocol.TakeOver("", has.Name, holder)) // the engine notifies the next holder
		if given == nil || errors.Is(given, driver.ErrRetry) {
			taken++
		}
		if gone.Done() && has.Token != 0 {
			took(has.Name, holder)
		}
	}
	return len(claims), taken, err
}
