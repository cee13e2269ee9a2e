package mysql

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/driver"
	"github.com/go-sql-driver/mysql"
)

// interpret turns an error of the driver into a kind of package driver, by number. What has none never came from the
// server: a connection that broke or could not be made.
func interpret(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, kind := range []error{driver.ErrBusy, driver.ErrNotHeld, driver.ErrCapacity, driver.ErrUnsupported, driver.ErrConfig, driver.ErrUnavailable} {
		if errors.Is(err, kind) {
			return err
		}
	}
	n := number(err)
	if n == 0 {
		return driver.Fail(driver.ErrUnavailable, err)
	}
	if kind := kindOf(n); kind != nil {
		return driver.Fail(kind, err)
	}
	return err
}

// number is the server's number of an error; 0: it is not the server's.
func number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

const (
	lockWaitTimeout = 1205 // also MariaDB's answer to NOWAIT
	killed          = 1317
	lockNoWait      = 3572
	unknownVariable = 1193
	noSuchThread    = 1094
)

func kindOf(n uint16) error {
	switch n {
	case 1146, 1054, 1356: // no such table, column; a view whose parts are gone
		return driver.ErrSchema
	case 1290, 1792, 1836, 1874, 3100: // --read-only, READ ONLY transaction, read-only mode, InnoDB read-only, a group's secondary
		return driver.ErrReadOnly
	case 1213, lockWaitTimeout, 1020, 1614, 3101: // deadlock, lock wait, snapshot isolation, certification of a cluster, of a group
		return driver.ErrRetry
	case lockNoWait:
		return driver.ErrBusy
	case 1665: // binlog_format=STATEMENT cannot log READ COMMITTED
		return driver.ErrConfig
	case 1021, 1026, 1030, 1114, 1037, 1038, 1041, 5, // disk full, I/O, table full, out of memory
		1040, 1203, 1226, 1461, // too many connections, of one user, prepared statements
		1043, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, // handshake, shutdown, network
		1047, 1243, 1615, // cluster not ready; a proxy has forgotten the statement, or it changed underneath
		killed, 1927, 1969, 2006, 2013, 3024, 3168, 4031: // killed, over the application's time limit, gone, idle for too long
		return driver.ErrUnavailable
	}
	return nil
}
