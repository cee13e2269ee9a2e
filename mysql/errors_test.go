package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/driver"
)

func TestInterpret(t *testing.T) {
	server := func(n uint16) error { return fmt.Errorf("at work: %w", &mysql.MySQLError{Number: n}) }
	for _, c := range []struct{ err, want error }{
		{server(1146), driver.ErrSchema},
		{server(1290), driver.ErrReadOnly},
		{server(1792), driver.ErrReadOnly},
		{server(1836), driver.ErrReadOnly},
		{server(1213), driver.ErrRetry},
		{server(1205), driver.ErrRetry},
		{server(1020), driver.ErrRetry},
		{server(3101), driver.ErrRetry},
		{server(3572), driver.ErrBusy},
		{server(1021), driver.ErrUnavailable},
		{server(1040), driver.ErrUnavailable},
		{server(1114), driver.ErrUnavailable},
		{server(1317), driver.ErrUnavailable},
		{server(1927), driver.ErrUnavailable},
		{server(3024), driver.ErrUnavailable},
		{server(1665), driver.ErrConfig},
		{mysql.ErrInvalidConn, driver.ErrUnavailable},
		{sqldriver.ErrBadConn, driver.ErrUnavailable},
		{context.Canceled, context.Canceled},
		{driver.ErrNotHeld, driver.ErrNotHeld},
	} {
		got := interpret(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	denied := server(1045) // a kind of none: as it came
	if got := interpret(denied); got != denied {
		t.Error(got)
	}
	if interpret(nil) != nil {
		t.Error("an error out of none")
	}
}
