package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// takeSleepLock takes the lock that a listener waits for on MariaDB, on the connection of its
// session's heartbeats. The named lock lasts as long as that connection, so the listener gets it
// when it has to look for another connection. takeSleepLock returns its name, or "" if the server
// gives none.
//
// SLEEP does not work there. A thread that wakes from SLEEP holds a mutex that all sleepers of the
// server share, and requests a second one. The thread that kills it holds that second mutex and
// tries the first. So two simultaneous KILLs, or one while another thread falls asleep, block both
// sides and every other sleeper for two seconds (MariaDB 10.11). A wait for a named lock has a
// mutex of its own. If dblock's tables are altered, a heartbeat may be the victim of a deadlock
// with such a wait: it is sent again.
func takeSleepLock(ctx context.Context, conn *sql.Conn) string {
	name := "dblock:sleep:" + rand.Text()
	var held sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 0)").Scan(&held); err != nil || !held.Bool {
		return ""
	}
	return name
}

// checkSleepLock fails if the listener has obtained the sleep lock: the heartbeats' connection is
// gone, and there is nothing more to wait for.
func checkSleepLock(outcome int64, err error) (int64, error) {
	if err == nil && outcome == sleepLockFree {
		err = driver.Fail(driver.ErrUnavailable,
			errors.New("the connection of the heartbeats, beside which the listener waited, was lost"))
	}
	return outcome, err
}
