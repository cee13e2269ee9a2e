// Package assert fails a test that finds something unexpected, and lets the test go on. Package
// require does the same, and ends the test.
//
// The last arguments of each function name the value. A failure prints them before the value, with
// spaces in between.
package assert

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// NoError fails the test if err is not nil.
func NoError(t testing.TB, err error, about ...any) bool {
	t.Helper()
	return err == nil || fail(t, about, "%v", err)
}

// Error fails the test if err is nil.
func Error(t testing.TB, err error, about ...any) bool {
	t.Helper()
	return err != nil || fail(t, about, "no error")
}

// ErrorIs fails the test unless errors.Is finds want in err.
func ErrorIs(t testing.TB, err, want error, about ...any) bool {
	t.Helper()
	return errors.Is(err, want) || fail(t, about, "error %v, want %v", err, want)
}

// Equal fails the test unless two values are equal.
func Equal[T comparable](t testing.TB, got, want T, about ...any) bool {
	t.Helper()
	format := "%+v, want %+v"
	if _, text := any(got).(string); text {
		format = "%q, want %q"
	}
	return got == want || fail(t, about, format, got, want)
}

// ErrOf is the error of a call that returns a value beside it.
func ErrOf[T any](_ T, err error) error { return err }

// fail fails the test, and returns false.
func fail(t testing.TB, about []any, format string, args ...any) bool {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	if len(about) > 0 {
		text = strings.TrimSuffix(fmt.Sprintln(about...), "\n") + ": " + text
	}
	t.Error(text)
	return false
}
