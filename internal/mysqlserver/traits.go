package mysqlserver

import (
	"reflect"
	"runtime"
	"syscall"
	"time"
)

// Traits decide how a connection can be used. No statement and no method of the driver tells them.
type Traits struct {
	Peeks       bool          // ResetSession looks at the socket
	ReadTimeout time.Duration // 0: none, or not known
}

// TraitsOf reads the private fields of the driver's connection. Where they are not what they were,
// or the connection is another driver's, it knows nothing: its callers then use statements instead.
func TraitsOf(raw any) (t Traits) {
	v := reflect.ValueOf(raw)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct ||
		v.Type().Elem().PkgPath() != "github.com/go-sql-driver/mysql" {
		return t
	}
	v = v.Elem()
	config, socket := v.FieldByName("cfg"), v.FieldByName("rawConn") // what TLS is spoken on
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
