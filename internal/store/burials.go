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
	// cutShort is the longest time for which a sweep takes the locks of one session. The next sweep
	// goes on.
	cutShort = 100 * time.Millisecond
	// failedPause is the pause after a failure of the database.
	failedPause = time.Second
	// busyPause is the pause after a sweep that could not take everything.
	busyPause = 200 * time.Millisecond
)

// folder returns the folder in which the sessions of this host show that their processes live; "":
// there is none. If make is true, the engine makes its own.
func (s *Store) folder(ctx context.Context, make bool) crash.Folder {
	return s.config.Crash.Folder(s.Engine.HostFolder, make, func() string { return s.Database(ctx, false) })
}

// Sweep buries the sessions whose processes have ended on this host, and takes their locks and
// places in queues. It reports whether it has buried one. Without a dead process it sends no
// statement. It leaves the sweep to another process that has begun one within the last 80 ms.
func (m *Sessions) Sweep(ctx context.Context) (buried bool) { return m.sweep(ctx, sweptBeside) }

func (m *Sessions) sweep(ctx context.Context, unless time.Duration) (buried bool) {
	select {
	case m.sweeping <- struct{}{}:
		defer func() { <-m.sweeping }()
	case <-ctx.Done():
		return false
	}
	now, by := m.store.config.Clock.Now(), ""
	if now < m.nextSweep {
		return false
	}
	if s := m.Last(); s != nil {
		by = s.ID
	}
	m.nextSweep = now + sweepPause
	m.store.folder(ctx, false).Sweep(unless, func(session string) (told bool) {
		dead, told, err := m.bury(ctx, by, session)
		buried = buried || dead
		if !told {
			m.nextSweep = now + busyPause
		}
		if err != nil && !errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrRetry) && ctx.Err() == nil {
			m.taking.Failed(err, "session", session)
			m.nextSweep = now + failedPause
		}
		return told
	})
	return buried
}

// bury ends a session whose process has ended, and takes what it has. told reports that nothing is
// left.
func (m *Sessions) bury(ctx context.Context, by, session string) (dead, told bool, err error) {
	because := crash.Because(m.store.config.Host)
	err = m.store.Call(ctx, func(ctx context.Context) error {
		dead, err = m.store.Engine.Bury(ctx, session, by, because)
		return err
	})
	if err != nil || !dead { // a session of another database has the proof for nothing
		return false, err == nil, err
	}
	for since := m.store.config.Clock.Now(); ; {
		left, taken, err := m.take(ctx, session, because)
		if left == 0 || err != nil {
			return true, err == nil, err
		}
		if taken == 0 || m.store.config.Clock.Now()-since > cutShort {
			return true, false, nil
		}
	}
}

// take takes some of the locks and places of a dead session, and returns the numbers of those that
// it found and of those that it could take. A transaction that a lock guards may still be open.
func (m *Sessions) take(ctx context.Context, session, because string) (found, taken int, err error) {
	var claims []driver.Claim
	err = m.store.Call(ctx, func(ctx context.Context) error {
		claims, err = m.store.Engine.Claims(ctx, session, 64)
		return err
	})
	for _, has := range claims {
		holder := protocol.Holder{Session: session, Attempt: has.Attempt, Grant: protocol.Grant{Token: has.Token}}
		gone, given := m.store.Do(ctx, protocol.TakeOver("", has.Name, holder)) // the engine notifies the next holder
		if given == nil || errors.Is(given, driver.ErrRetry) {
			taken++
		}
		if gone.Done() && has.Token != 0 {
			m.keeper.Reclaimed(has.Name, holder, because)
		}
	}
	return len(claims), taken, err
}
