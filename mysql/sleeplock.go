package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// takeSleepLock takes what a listener waits for on MariaDB, on the connection of its session's
// heartbeats: a named lock that lasts as long as that connection, and is free when the listener has
// to look for another one. It returns its name; "": the server gives none.
//
// SLEEP is no good there. A thread that wakes from SLEEP holds a mutex that all sleepers of the
// server share, and asks for another one. The thread that kills it holds that other mutex and tries
// for the first. So two KILLs at the same time, or one while another thread falls asleep, stop both
// sides and every other sleeper for two seconds (seen on 10.11). A wait for a named lock has a
// mutex of its own. Where somebody alters dblock's tables, a heartbeat may be the victim of a
// deadlock with such a wait: it is sent again.
func takeSleepLock(ctx context.Context, conn *sql.Conn) string {
	name := "dblock:sleep:" + rand.Text()
	var held sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 0)").Scan(&held); err != nil || !held.Bool {
		return ""
	}
	return name
}

// checkSleepLock finds a sleep lock that is free: its connection is gone, and the listener, which
// has it now, has nothing more to wait for.
func checkSleepLock(outcome int64, err error) (int64, error) {
	if err == nil && outcome == sleepLockFree {
		err = driver.Fail(driver.ErrUnavailable,
			errors.New("the connection of the heartbeats, beside which the listener waited, was lost"))
	}
	return outcome, err
}
