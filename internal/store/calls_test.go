package store

import "testing"

func TestNoCallBeginsWhileAClientIsFoundIdle(t *testing.T) {
	c := NewCalls()
	c.between(func(bool) {
		if c.mu.TryLock() {
			t.Error("a call could begin")
		}
	})
}
