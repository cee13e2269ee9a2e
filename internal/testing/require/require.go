// Package require ends a test that finds something unexpected. Its functions are those of package
// assert.
package require

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error, about ...any) {
	t.Helper()
	end(t, assert.NoError(t, err, about...))
}

// Error ends the test if err is nil.
func Error(t testing.TB, err error, about ...any) {
	t.Helper()
	end(t, assert.Error(t, err, about...))
}

// ErrorIs ends the test unless errors.Is finds want in err.
func ErrorIs(t testing.TB, err, want error, about ...any) {
	t.Helper()
	end(t, assert.ErrorIs(t, err, want, about...))
}

// Equal ends the test unless two values are equal.
func Equal[T comparable](t testing.TB, got, want T, about ...any) {
	t.Helper()
	end(t, assert.Equal(t, got, want, about...))
}

// ErrOf is the error of a call that returns a value beside it.
func ErrOf[T any](_ T, err error) error { return err }

// end ends the test unless all is well.
func end(t testing.TB, well bool) {
	t.Helper()
	if !well {
		t.FailNow()
	}
}
