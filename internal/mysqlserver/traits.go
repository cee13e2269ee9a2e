package mysqlserver

import (
	"reflect"
	"runtime"
	"syscall"
	"time"
)

// Traits decide how a connection can be used. No statement and no method of the driver reveals
// them.
type Traits struct {
	Peeks       bool          // ResetSession checks the socket
	ReadTimeout time.Duration // 0: none, or not known
}

// TraitsOf reads the private fields of the driver's connection. If they have changed, or the
// connection is another driver's, it returns the zero value, and its callers use statements
// instead.
func TraitsOf(raw any) (t Traits) {
	v := reflect.ValueOf(raw)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct ||
		v.Type().Elem().PkgPath() != "github.com/go-sql-driver/mysql" {
		return t
	}
	v = v.Elem()
	config, socket := v.FieldByName("cfg"), v.FieldByName("rawConn") // the connection below TLS
	if socket.Kind() == reflect.Interface && socket.IsNil() {
		socket = v.FieldByName("netConn")
	}
	if config.Kind() != reflect.Pointer || config.IsNil() || config.Elem().Kind() != reflect.Struct ||
		socket.Kind() != reflect.Interface || socket.IsNil() {
		return t
	}
	if timeout := config.Elem().FieldByName("ReadTimeout"); timeout.Kind() == reflect.Int64 {
		t.ReadTimeout = time.Duration(timeout.Int())
	}
	checks := config.Elem().FieldByName("CheckConnLiveness")
	t.Peeks = checks.Kind() == reflect.Bool && checks.Bool() && runtime.GOOS != "windows" && runtime.GOOS != "plan9" &&
		runtime.GOOS != "js" &&
		socket.Elem().Type().Implements(reflect.TypeFor[syscall.Conn]())
	return t
}
