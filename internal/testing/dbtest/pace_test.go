package dbtest

import (
	"testing"
	"time"
)

func TestLimitsScale(t *testing.T) {
	if Slow() < 1 {
		t.Fatalf("Slow is %v: want at least 1", Slow())
	}
	if got := Scale(time.Second); got < time.Second || got.Seconds() > longestScale {
		t.Errorf("a second is %v here: want 1 to %v", got, longestScale)
	}
	if got := AtOnce(5); got < 1 || got > 5 {
		t.Errorf("5 at once are %d here", got)
	}
}
