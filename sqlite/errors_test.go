package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
)

// The shapes of the drivers' errors.
type (
	method       struct{ code int }
	narrow       uint8
	wide         uint16
	ownTypes     struct{ code uint16 }
	entire       uint16
	number       int
	fields       struct{ Code, ExtendedCode number }
	embedded     struct{ *fields }
	unrelated    struct{ Code string }
	withArgument struct{}
)

func (e *method) Error() string           { return "" }
func (e *method) Code() int               { return e.code }
func (e *ownTypes) Error() string         { return "" }
func (e *ownTypes) Code() narrow          { return narrow(e.code) }
func (e *ownTypes) ExtendedCode() wide    { return wide(e.code) }
func (e entire) Error() string            { return "" }
func (e entire) Code() narrow             { return narrow(e) }
func (e fields) Error() string            { return "" }
func (e embedded) Error() string          { return "" }
func (e unrelated) Error() string         { return "" }
func (e withArgument) Error() string      { return "" }
func (e withArgument) Code(int) int       { return 5 }
func (e withArgument) ExtendedCode() bool { return true }

func TestResultCodesAreFoundInTheErrorsOfAnyDriver(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{&method{517}, 517},
		{&ownTypes{517}, 517},
		{entire(517), 517},
		{fields{Code: 5}, 5},
		{&fields{Code: 5, ExtendedCode: 517}, 517},
		{fmt.Errorf("wrapped: %w", &method{5}), 5},
		{errors.Join(errors.New("first"), fmt.Errorf("wrapped: %w", fields{Code: 6})), 6},
		{driver.Fail(context.Canceled, &ownTypes{5}), 5},
	} {
		if code, ok := codeOf(c.err); !ok || code != c.code {
			t.Errorf("%#v: %d, %v", c.err, code, ok)
		}
	}
	for _, err := range []error{nil, errors.New("text"), unrelated{}, withArgument{}, embedded{}, context.Canceled,
		fields{}} {
		if code, ok := codeOf(err); ok {
			t.Errorf("%#v has code %d", err, code)
		}
	}
}

func TestResultCodesAndTheirKinds(t *testing.T) {
	for code, kind := range map[int]error{
		8: driver.ErrReadOnly, 264: driver.ErrReadOnly, 1032: driver.ErrUnavailable, 13: driver.ErrUnavailable,
		10: driver.ErrUnavailable, 522: driver.ErrUnavailable, 14: driver.ErrUnavailable, 11: driver.ErrUnavailable,
		26: driver.ErrUnavailable, 7: driver.ErrUnavailable, 17: driver.ErrRetry,
	} {
		cause := &method{code}
		if err := interpret(cause); !errors.Is(err, kind) || !errors.Is(err, cause) {
			t.Errorf("%d is %v, want %v", code, err, kind)
		}
	}
	for code, doubt := range map[int]bool{1: false, 19: false, 13: false, 10: true, 522: true, 11: true} {
		cause := &method{code}
		if err := interpret(cause); !errors.Is(err, cause) || driver.InDoubt(err) != doubt || interpret(err) != err {
			t.Errorf("%d in doubt: %v, want %v", code, !doubt, doubt)
		}
	}
	if !driver.InDoubt(interpret(errors.New("the connection broke"))) {
		t.Error("a connection that broke is not in doubt")
	}
	for _, err := range []error{context.Canceled, driver.ErrNotHeld} {
		if got := interpret(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	for code, want := range map[int]bool{5: true, 261: true, 517: true, 6: true, 262: true, 15: true, 1: false,
		8: false} {
		if busy(&method{code}) != want {
			t.Errorf("busy(%d) is %v", code, !want)
		}
	}
}
