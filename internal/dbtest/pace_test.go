package dbtest

import (
	"testing"
	"time"
)

func TestTheSlowestSampleIsThePace(t *testing.T) {
	slowest, all, err := Pace(t.Context(), KindSQLite)
	if err != nil || len(all) != 1 || slowest.What != "work" || slowest.Took <= 0 {
		t.Fatalf("got %v of %v, error %v: want how long a piece of work took", slowest, all, err)
	}
	half := Sample{"half", usualWork / 2, usualWork}
	double := Sample{"double", 2 * usualWork, usualWork}
	if half.Times() != 1 || double.Times() != 2 {
		t.Errorf("half and double the usual time are %v and %v: want 1 and 2", half.Times(), double.Times())
	}
}

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
