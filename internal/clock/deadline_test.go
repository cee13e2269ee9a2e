package clock

import (
	"testing"
	"time"
)

// Broken by a deadline that is moved after somebody was told that it has passed.
func TestADeadlineThatHasPassedStaysSo(t *testing.T) {
	now := 9 * time.Second
	d := NewDeadline(Func(func() time.Duration { return now }), 10*time.Second)
	if d.Passed() || !d.Move(12*time.Second) || !d.Move(11*time.Second) || d.At() != 12*time.Second {
		t.Fatalf("before it has passed, it is moved to %v", d.At())
	}
	if now = 12 * time.Second; d.Move(time.Minute) || d.At() != 12*time.Second {
		t.Errorf("after it has passed, it is moved to %v", d.At())
	}
	// Another caller has read the clock before that, and moves the deadline after it.
	if now = 11 * time.Second; !d.Passed() || d.Move(time.Minute) {
		t.Error("it has passed, and is to come again")
	}
}
