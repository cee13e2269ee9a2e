// Package require ends a test at an error that the test does not expect.
package require

import "testing"

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
