package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// sleepLock is what a listener waits for on MariaDB: a named lock that a second connection holds.
// SLEEP is no good there. A thread that wakes from SLEEP holds a mutex that all sleepers of the
// server share, and asks for another one. The thread that kills it holds that other mutex and tries
// for the first. So two KILLs at the same time, or one while another thread falls asleep, stop both
// sides and every other sleeper for two seconds (seen on 10.11). A wait for a named lock has a
// mutex of its own.
type sleepLock struct {
	name string
	conn *sql.Conn
}

// openSleepLock returns nil where none is needed.
func (e *engine) openSleepLock(ctx context.Context, listener *sql.Conn) (*sleepLock, error) {
	version, err := variable(ctx, listener, "version", "version")
	if err != nil || !strings.Contains(version, "MariaDB") {
		return nil, err
	}
	if err := e.side.Leaves(e.db.Stats().MaxOpenConnections, 2); err != nil {
		return nil, driver.Fail(driver.ErrUnsupported, fmt.Errorf("no connection is left to listen for wake-ups with, of which MariaDB needs two: %v", err))
	}
	conn, err := e.reserve(ctx, 365*24*time.Hour) // idle for as long as the listener lives
	if err != nil {
		return nil, err
	}
	g := &sleepLock{name: "dblock:sleep:" + rand.Text(), conn: conn}
	if err := g.shut(ctx); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// shut takes the lock.
func (g *sleepLock) shut(ctx context.Context) error {
	var shut sql.NullBool
	if err := g.conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+g.name+"', 0)").Scan(&shut); err != nil {
		return err
	}
	if !shut.Bool {
		return driver.Fail(driver.ErrUnsupported, errors.New("the server gives no named locks"))
	}
	return nil
}

// check finds a lock that is free: its connection is gone, and the listener has nothing more to
// wait for.
func (g *sleepLock) check(outcome int64, err error) (int64, error) {
	if g != nil && err == nil && outcome == sleepLockFree {
		err = driver.Fail(driver.ErrUnavailable, errors.New("the connection beside the listener's was lost"))
	}
	return outcome, err
}

func (g *sleepLock) close() {
	if g != nil {
		mysqlserver.Discard(g.conn)
	}
}
