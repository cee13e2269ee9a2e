package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// Result codes of SQLite. The low byte is the kind, the bytes above it are the details.
const (
	sqliteError    = 1
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteNoMem    = 7
	sqliteReadOnly = 8
	sqliteIOErr    = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteProtocol = 15 // WAL: other connections won the race too many times
	sqliteSchema   = 17
	sqliteNotADB   = 26

	// sqliteBusySnapshot means that another connection has written since the transaction's first
	// read (WAL).
	sqliteBusySnapshot  = sqliteBusy | 2<<8
	sqliteReadOnlyMoved = sqliteReadOnly | 4<<8 // the file was moved or deleted while open
)

// interpret turns an error of any SQLite driver into a kind of package driver, by its result code.
// An error without a code does not come from SQLite: the pool is closed, or no connection could be
// made.
func interpret(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if closed := driver.PoolClosed(err); closed != nil {
		return closed
	}
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, driver.ErrTxDone) { // of the caller's transaction
		return driver.Fail(driver.ErrTxDone, err)
	}
	for _, kind := range []error{driver.ErrRefused, driver.ErrSchema, driver.ErrConfig, driver.ErrNotHeld,
		driver.ErrCapacity, driver.ErrRetry, driver.ErrTxDone} {
		if errors.Is(err, kind) {
			return err
		}
	}
	code, coded := codeOf(err)
	if !coded {
		if server := transaction.Server(err); server != "" {
			return driver.Fail(driver.ErrConfig, fmt.Errorf("package sqlite was given a pool of %s: %w", server, err))
		}
		return driver.Fail(driver.ErrUnavailable, err)
	}
	if kind := kindOf(code); kind != nil {
		err = driver.Fail(kind, err)
	}
	if !inDoubt(code) {
		err = driver.Refused(err)
	}
	return err
}

// inDoubt reports whether an error leaves the outcome of a transaction unknown: a commit that
// failed halfway may be found in the journal. After any other error the transaction is rolled back.
func inDoubt(code int) bool {
	switch code & 0xff {
	case sqliteIOErr, sqliteCorrupt, sqliteNotADB:
		return true
	}
	return code == sqliteReadOnlyMoved
}

func kindOf(code int) error {
	if code == sqliteReadOnlyMoved {
		return driver.ErrUnavailable
	}
	switch code & 0xff {
	case sqliteReadOnly:
		return driver.ErrReadOnly
	case sqliteSchema:
		return driver.ErrRetry
	case sqliteNoMem, sqliteIOErr, sqliteCorrupt, sqliteFull, sqliteCantOpen, sqliteNotADB:
		return driver.ErrUnavailable
	}
	return nil
}

// busy reports whether another connection was in the way. Nothing was done then.
func busy(err error) bool {
	code, coded := codeOf(err)
	if !coded {
		return false
	}
	switch code & 0xff {
	case sqliteBusy, sqliteLocked, sqliteProtocol:
		return true
	}
	return false
}

// codeOf finds the result code in an error of any driver. modernc.org/sqlite has a method Code.
// ncruces/go-sqlite3 has ExtendedCode and Code with types of its own, or an error that is an
// extended code and has a method Code for its low byte. mattn/go-sqlite3 has fields of these names.
// An interface cannot name a driver's types without importing the driver.
func codeOf(err error) (int, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if code, ok := codeOf(e); ok {
					return code, true
				}
			}
			return 0, false
		}
		v := reflect.ValueOf(err)
		for _, method := range []reflect.Value{v.MethodByName("ExtendedCode"), v.MethodByName("Code")} {
			if method.IsValid() && method.Type().NumIn() == 0 && method.Type().NumOut() == 1 {
				if code, ok := integer(method.Call(nil)[0]); ok {
					if whole, ok := integer(v); ok && whole&0xff == code {
						return whole, true
					}
					return code, true
				}
			}
		}
		v = reflect.Indirect(v)
		for _, name := range []string{"ExtendedCode", "Code"} {
			if v.Kind() != reflect.Struct {
				break
			}
			field, ok := v.Type().FieldByName(name)
			if !ok || len(field.Index) > 1 { // a field of an embedded pointer may be missing
				continue
			}
			if code, ok := integer(v.FieldByIndex(field.Index)); ok && code != 0 {
				return code, true
			}
		}
	}
	return 0, false
}

func integer(v reflect.Value) (int, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return int(v.Int()), true
	case v.CanUint():
		return int(v.Uint()), true
	}
	return 0, false
}

// migrated reports whether the tables exist, in any of the connection's databases, in a version
// that this build can use. The result code of a missing table is that of any mistake in a
// statement, so it does not tell.
func migrated(ctx context.Context, conn sqlitedb.DBTX) bool {
	const objects = `.sqlite_schema WHERE name IN ('dblock_schema', 'dblock_clock',
		'dblock_sessions', 'dblock_heartbeats', 'dblock_living', 'dblock_locks', 'dblock_shares', 'dblock_waiters',
		'dblock_events', 'dblock_runs', 'dblock_watchers', 'dblock_incarnation')`
	names, _, err := databases(ctx, conn)
	if err != nil {
		return true // unknown: the error stays as it is
	}
	whole := false
	for _, name := range names {
		var n int
		if conn.QueryRowContext(ctx, "SELECT count(*) FROM "+name+objects).Scan(&n) != nil {
			return true
		}
		whole = whole || n >= 12
	}
	if !whole {
		return false
	}
	row, there, err := found(sqlitedb.New(conn).Schema(ctx))
	if err != nil {
		return true
	}
	return there && driver.Schema{Version: int(row.Version), UsableFrom: int(row.UsableFrom)}.Check() == nil
}
