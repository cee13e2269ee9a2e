package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

type mariaDB struct{ innoDB }

var inMariaDB = &mariaDB{innoDB{
	common{facts{
		texts: mysqldb.MySQL, resets: resetLimit, lists: true, pairs: pairsWith("LOCK IN SHARE MODE"),
		open: transaction.OpenInMariaDB, undoes: "innodb_rollback_on_timeout",
	}},
	takeRow,
}}

// takeRow is TakeLock for MariaDB, which would write a file for that statement. A refusal to wait
// is a timeout there.
func takeRow(ctx context.Context, q *mysqldb.Queries, p mysqldb.TakeLockParams) (int64, error) {
	token, err := q.TakeRow(ctx, mysqldb.TakeRowParams{
		Name: p.Name, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
		Lease: p.Lease, MinHold: p.MinHold, Metadata: p.Metadata,
	})
	if mysqlserver.Number(err) == mysqlserver.LockWaitTimeout {
		return 0, nil
	}
	return token, err
}

// sleepLock takes a named lock, which lasts as long as the connection of the heartbeats. So the
// listener gets it when it has to look for another connection.
//
// SLEEP does not work there. A thread that wakes from SLEEP holds a mutex that all sleepers of the
// server share, and requests a second one. The thread that kills it holds that second mutex and
// tries the first. So two simultaneous KILLs, or one while another thread falls asleep, block both
// sides and every other sleeper for two seconds (MariaDB 10.11). A wait for a named lock has a
// mutex of its own. If dblock's tables are altered, a heartbeat may be the victim of a deadlock
// with such a wait: it is sent again.
func (*mariaDB) sleepLock(ctx context.Context, on *sql.Conn) (string, error) {
	name := "dblock:sleep:" + rand.Text()
	var held sql.NullBool
	if err := on.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 0)").Scan(&held); err != nil || !held.Bool {
		return "", driver.Fail(driver.ErrUnavailable,
			errors.New("the connection of the heartbeats got no named lock, beside which a listener waits on MariaDB"))
	}
	return name, nil
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
