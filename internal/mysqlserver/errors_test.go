package mysqlserver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestInterpret(t *testing.T) {
	server := func(n uint16) error { return fmt.Errorf("at work: %w", &mysql.MySQLError{Number: n}) }
	for _, c := range []struct{ err, want error }{
		{&mysql.MySQLError{Number: 1146, Message: "Table 'app.dblock_locks' doesn't exist"}, driver.ErrSchema},
		{server(8113), driver.ErrSchema},
		{server(9007), driver.ErrRetry},
		{&mysql.MySQLError{Number: 1105, Message: "Information schema is changed"}, driver.ErrRetry},
		{&mysql.MySQLError{Number: 1317, Message: "target: app.0.primary: vttablet: rpc error: code = Aborted desc = " +
			"transaction 17: ended at 2026-11-27 23:58:54.622 UTC (exceeded timeout: 30s)"}, driver.ErrRetry},
		{&mysql.MySQLError{Number: 1105, Message: "target: app.0.primary: no healthy tablet available for 'keyspace'"},
			driver.ErrUnavailable},
		{server(2002), driver.ErrUnavailable},
		{server(1290), driver.ErrReadOnly},
		{server(1792), driver.ErrReadOnly},
		{server(1836), driver.ErrReadOnly},
		{server(1213), driver.ErrRetry},
		{server(1213), driver.ErrRolledBack},
		{server(1020), driver.ErrRolledBack},
		{server(1205), driver.ErrRetry},
		{server(1020), driver.ErrRetry},
		{server(3101), driver.ErrRetry},
		{&mysql.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"},
			driver.ErrRetry},
		{&mysql.MySQLError{Number: 1180, Message: "Got error 28 - 'No space left on device' during COMMIT"},
			driver.ErrUnavailable},
		{&mysql.MySQLError{Number: 1105, Message: "An error occurred in multi-table update"}, driver.ErrRetry},
		{server(3572), driver.ErrBusy},
		{server(1045), driver.ErrDenied},
		{server(3032), driver.ErrUnavailable},
		{server(9001), driver.ErrUnavailable},
		{server(1021), driver.ErrUnavailable},
		{server(1040), driver.ErrUnavailable},
		{server(1114), driver.ErrUnavailable},
		{server(1317), driver.ErrUnavailable},
		{server(1927), driver.ErrUnavailable},
		{server(3024), driver.ErrUnavailable},
		{server(1665), driver.ErrConfig},
		{server(1366), driver.ErrConfig},
		{fmt.Errorf("in a guard: %w", sql.ErrTxDone), driver.ErrTxDone},
		{sql.ErrNoRows, driver.ErrRetry},
		{fmt.Errorf("of another driver: %w", stateError("42601")), driver.ErrConfig},
		{mysql.ErrInvalidConn, driver.ErrUnavailable},
		{sqldriver.ErrBadConn, driver.ErrUnavailable},
		{context.Canceled, context.Canceled},
		{server(1044), driver.ErrConfig}, {server(1142), driver.ErrConfig}, {server(1143), driver.ErrConfig},
		{server(1227), driver.ErrConfig}, {server(1370), driver.ErrConfig},
		{mysql.ErrBusyBuffer, driver.ErrConfig},
		{driver.ErrNotHeld, driver.ErrNotHeld},
	} {
		got := Interpret(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		assert.Equal(t, Interpret(got), got, "said twice")
	}
	if text := Interpret(server(1290)).Error(); !strings.HasPrefix(text,
		"the database is read-only: a failover may be in progress; connect to the primary: at work: ") {
		t.Errorf("a read-only server: %q", text)
	}
	if text := Interpret(server(1142)).Error(); !strings.Contains(text,
		"the user lacks a right of docs/privileges/mysql-app.sql (to only look: mysql-people.sql): at work: ") {
		t.Errorf("a right that is missing: %q", text)
	}
	for _, ofNoKind := range []error{
		&mysql.MySQLError{Number: 1317, Message: "rpc error: code = Aborted desc = Row count exceeded 10000"},
		&mysql.MySQLError{Number: 1105, Message: "Unknown error"},
		&mysql.MySQLError{Number: 1146, Message: "Table 'dblock_app.orders' doesn't exist"},
		&mysql.MySQLError{Number: 1146, Message: "Table '/tmp/#sql-temptable-1-2-3' doesn't exist"},
	} {
		if got := Interpret(ofNoKind); !errors.Is(got, ofNoKind) || got.Error() != ofNoKind.Error() ||
			driver.InDoubt(got) {
			t.Error(got)
		}
	}
	for n, doubt := range map[uint16]bool{3100: true, 3101: true, 1213: false, 1836: false} {
		if got := Interpret(server(n)); errors.Is(got, driver.ErrInDoubt) != doubt {
			t.Errorf("in doubt is not %v: %v", doubt, got)
		}
	}
	assert.NoError(t, Interpret(nil), "an error out of none")
	for n, doubt := range map[uint16]bool{1142: false, 1062: false, 1644: false, 1114: false, 1040: false, 1045: false,
		1317: true, 1053: true, 1180: true, 2013: true} {
		err := Interpret(server(n))
		if driver.InDoubt(err) != doubt || Interpret(err) != err {
			t.Errorf("%d in doubt: %v, want %v", n, !doubt, doubt)
		}
	}
	for n, doubt := range map[uint16]bool{1026: true, 1142: true, 1213: false} {
		if driver.InDoubt(Interpret(AtCommit(server(n)))) != doubt {
			t.Errorf("%d at COMMIT in doubt: %v, want %v", n, !doubt, doubt)
		}
	}
	if !driver.InDoubt(Interpret(mysql.ErrInvalidConn)) {
		t.Error("a connection that broke is not in doubt")
	}
}

// stateError is an error as PostgreSQL's drivers have them.
type stateError string

func (e stateError) Error() string    { return "syntax error" }
func (e stateError) SQLState() string { return string(e) }
