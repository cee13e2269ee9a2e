package transaction

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// Retryable reports whether an error means that the whole transaction lost a race and may succeed
// when it is run again. It decides by kind or code, never by message. An error of an unknown driver
// is not retryable.
func Retryable(err error) bool {
	if errors.Is(err, driver.ErrRetry) {
		return true
	}
	switch SQLState(err) {
	case "40001", "40P01": // serialization failure, deadlock
		return true
	}
	switch mysqlNumber(err) {
	case 1213, lockWaitTimeout, 1020: // deadlock, lock wait, snapshot isolation (MariaDB)
		return true
	}
	code, ok := sqliteCode(err)
	return ok && (code&0xff == sqliteBusy || code&0xff == sqliteLocked)
}

// KeyExists reports whether a statement was refused because there is a row with its key.
func KeyExists(err error) bool {
	code, _ := sqliteCode(err)
	return SQLState(err) == "23505" || mysqlNumber(err) == 1062 || code == sqlitePrimaryKey || code == sqliteUnique
}

// Denied reports whether the server refused a statement because the user has no right to it.
func Denied(err error) bool {
	switch mysqlNumber(err) {
	case 1044, 1142, 1143, 1370, 1227, 8121: // database, table, column, routine, anything else; TiDB
		return true
	}
	return SQLState(err) == "42501"
}

// readOnly reports whether a transaction accepts no writes.
func readOnly(err error) bool {
	if SQLState(err) == "25006" {
		return true
	}
	switch mysqlNumber(err) {
	case 1290, 1792, 1836: // --read-only, a READ ONLY transaction, read-only mode
		return true
	}
	code, ok := sqliteCode(err)
	return ok && code&0xff == sqliteReadOnly
}

// openRows are the texts of drivers for a statement that was sent while the rows of another one of
// the same connection are open. Only MySQL's driver has a value for that error.
var openRows = []string{
	"conn busy",   // pgx
	"busy buffer", // go-sql-driver/mysql
}

// RowsOpen returns ErrConfig if a driver refused a statement because rows of the transaction are
// open, and nil otherwise. Nothing was sent.
func RowsOpen(err error) error {
	if !within(err, func(v reflect.Value) bool {
		e, ok := v.Interface().(error)
		return ok && slices.Contains(openRows, e.Error())
	}) {
		return nil
	}
	return driver.Mark(driver.ErrConfig,
		fmt.Errorf("rows of the transaction are still open: close them first: %w", err))
}

// Server returns the kind of server that an error came from. It returns "" for a broken connection,
// or an unknown driver.
func Server(err error) string {
	if SQLState(err) != "" {
		return "PostgreSQL"
	}
	if mysqlNumber(err) != 0 {
		return "MySQL or MariaDB"
	}
	if _, coded := sqliteCode(err); coded {
		return "SQLite"
	}
	return ""
}

// SQLState returns the SQLSTATE of PostgreSQL's errors, "" for others: drivers have a method for
// it, or for any field of the protocol (bun's pgdriver).
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	var server interface{ Field(k byte) string }
	switch {
	case errors.As(err, &coded):
		return coded.SQLState()
	case errors.As(err, &server):
		return server.Field('C')
	}
	return ""
}

// mysqlNumber returns the server's number of an error, 0 for other errors. The driver has no method
// for it, only the field Number of *mysql.MySQLError.
func mysqlNumber(err error) (number uint16) {
	within(err, func(v reflect.Value) bool {
		if s := reflect.Indirect(v); s.Kind() == reflect.Struct && s.Type().Name() == "MySQLError" {
			if field := s.FieldByName("Number"); field.IsValid() && field.CanUint() {
				number = uint16(field.Uint())
			}
		}
		return number != 0
	})
	return number
}

// sqliteCode returns SQLite's result code, in as much detail as the driver has it:
// modernc.org/sqlite has a method Code, ncruces/go-sqlite3 has ExtendedCode with a type of its own,
// mattn/go-sqlite3 has fields. The package's name excludes other types with a Code.
func sqliteCode(err error) (code int, ok bool) {
	within(err, func(v reflect.Value) bool {
		s := reflect.Indirect(v)
		if !s.IsValid() || !strings.Contains(s.Type().PkgPath(), "sqlite") {
			return false
		}
		for _, method := range []reflect.Value{v.MethodByName("ExtendedCode"), v.MethodByName("Code")} {
			if !ok && method.IsValid() && method.Type().NumIn() == 0 && method.Type().NumOut() == 1 {
				code, ok = integer(method.Call(nil)[0])
			}
		}
		for _, name := range []string{"ExtendedCode", "Code"} {
			if !ok && s.Kind() == reflect.Struct {
				code, ok = integer(s.FieldByName(name))
			}
		}
		return ok
	})
	return code, ok
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

// within calls f for every error in err's tree, until f returns true.
func within(err error, f func(reflect.Value) bool) bool {
	if err == nil {
		return false
	}
	if f(reflect.ValueOf(err)) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return within(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if within(one, f) {
				return true
			}
		}
	}
	return false
}
