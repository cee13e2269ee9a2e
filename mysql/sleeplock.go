package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// sleepLocks are what a listener waits for on MariaDB: named locks that the connections of the
// engine's heartbeats hold, one each. SLEEP is no good there. A thread that wakes from SLEEP holds
// a mutex that all sleepers of the server share, and asks for another one. The thread that kills it
// holds that other mutex and tries for the first. So two KILLs at the same time, or one while
// another thread falls asleep, stop both sides and every other sleeper for two seconds (seen on
// 10.11). A wait for a named lock has a mutex of its own. Where somebody alters dblock's tables, a
// heartbeat may be the victim of a deadlock with such a wait: it is sent again.
type sleepLocks struct {
	mu    sync.Mutex
	names []string      // that are held, as far as is known; the latest last
	more  chan struct{} // closed when there is one more
}

func newSleepLocks() *sleepLocks { return &sleepLocks{more: make(chan struct{})} }

// hold takes a new sleep lock on a connection, and returns its name; "": the server gives none. It
// is held until release, or for as long as the connection lives.
func (s *sleepLocks) hold(ctx context.Context, conn *sql.Conn) string {
	name := "dblock:sleep:" + rand.Text()
	var held sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 0)").Scan(&held); err != nil || !held.Bool {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	close(s.more)
	s.more = make(chan struct{})
	return name
}

// release forgets a sleep lock, whose connection is about to be closed.
func (s *sleepLocks) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = slices.DeleteFunc(s.names, func(other string) bool { return other == name })
}

// latest returns one that is held. It waits for a moment: a client begins to listen while its
// heartbeats connect.
func (s *sleepLocks) latest(ctx context.Context, patience time.Duration) (string, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		names, more := s.names, s.more
		s.mu.Unlock()
		if len(names) > 0 {
			return names[len(names)-1], nil
		}
		select {
		case <-more:
		case <-late.C:
			return "", driver.Fail(driver.ErrUnavailable, errors.New("the connection of the heartbeats, beside which a listener waits on MariaDB, is not there"))
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// checkSleepLock finds a sleep lock that is free: its connection is gone, and the listener, which
// has it now, has nothing more to wait for.
func checkSleepLock(outcome int64, err error) (int64, error) {
	if err == nil && outcome == sleepLockFree {
		err = driver.Fail(driver.ErrUnavailable, errors.New("the connection of the heartbeats, beside which the listener waited, was lost"))
	}
	return outcome, err
}
