// Package example gives Example functions, which have no *testing.T, what package dblocktest asks
// of one. Only tests import it.
package example

import (
	"io"
	"log"
	"slices"
	"testing"
)

// T is a test that ends with End, ends the program when it fails, and logs to nowhere.
type T struct {
	testing.TB // nil: methods that are not here panic
	cleanups   []func()
}

func (*T) Helper()                   {}
func (*T) Output() io.Writer         { return io.Discard }
func (*T) Fatal(args ...any)         { log.Fatal(args...) }
func (*T) Errorf(f string, a ...any) { log.Fatalf(f, a...) }
func (t *T) Cleanup(f func())        { t.cleanups = append(t.cleanups, f) }

// End runs what Cleanup was given.
func (t *T) End() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
